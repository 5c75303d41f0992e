"""Equal nodes are interchangeable: a new plan's nodes are renamed so that as much of the old state as possible stays where it is."""
from collections import defaultdict
from dataclasses import replace

import numpy as np

from solver.cost.setting import Setting
from solver.domain.cluster import NodeGroup
from solver.domain.packing import Gpu
from solver.domain.plan import Plan
from solver.search.replan.holdings import Held, held, parts, runs

MOST_NODES = 128                                           # of a group in which nodes are renamed
Names = dict[tuple[str, int], int]


def kept_in_place(shared: Setting, old: Plan, new: Plan) -> Plan:
    """The new plan with the nodes of each group permuted: an assignment problem over the bytes that node i of the new plan would find on node j.

    Only whole nodes of groups without fabric that joins some nodes and not others, so that no transfer changes its link.
    """
    from scipy.optimize import linear_sum_assignment       # slow to import, and only needed here

    names: Names = {}
    found = _found(shared, old, new)
    for group in shared.problem.cluster.node_groups:
        nodes = _interchangeable(group)
        if len(nodes) > 1 and group.name in found:
            worth = found[group.name][np.ix_(nodes, nodes)] + 1e-3 * np.eye(len(nodes))    # among equals, no renaming
            rows, columns = linear_sum_assignment(worth, maximize=True)
            names |= {(group.name, nodes[i]): nodes[j] for i, j in zip(rows.tolist(), columns.tolist(), strict=True)}
    return _renamed(new, names)


def _interchangeable(group: NodeGroup) -> list[int]:
    whole = group.nodes * group.gpus_per_node
    if group.nodes > MOST_NODES or any(group.gpus_per_node < tier.size < whole for tier in group.tiers):
        return []
    impaired = {g.node for g in group.unavailable_gpus}
    return [node for node in range(group.nodes) if node not in impaired]


def _found(shared: Setting, old: Plan, new: Plan) -> dict[str, np.ndarray]:
    """[new node, old node] bytes by group that a GPU of the new plan would find on the GPU of the same index."""
    tied = shared.model.tied_embeddings
    groups = {g.name: g for g in shared.problem.cluster.node_groups}
    found = {name: np.zeros((g.nodes, g.nodes)) for name, g in groups.items() if g.nodes <= MOST_NODES}
    for part in parts(shared, new, runs(shared, (old, new))):
        there: dict[tuple[str, int], list[Held]] = defaultdict(list)
        for h in held(old, part, tied):
            if h.gpu[0] in found and h.gpu[1] < groups[h.gpu[0]].nodes:
                there[h.gpu[0], h.gpu[2]].append(h)
        for need in held(new, part, tied):
            for h in there.get((need.gpu[0], need.gpu[2]), ()):
                shared_part = min(need.high, h.high) - max(need.low, h.low)
                if shared_part > 0:
                    found[need.gpu[0]][need.gpu[1], h.gpu[1]] += shared_part * part.size_bytes
    return found


def _renamed(plan: Plan, names: Names) -> Plan:
    def moved(gpu: Gpu) -> int:
        return names.get((gpu[0], gpu[1]), gpu[1])

    return replace(plan, pipelines=tuple(replace(p, stages=tuple(
        replace(s, devices=tuple(replace(d, node=moved((d.node_group, d.node, 0))) for d in s.devices)) for s in p.stages)) for p in plan.pipelines))
