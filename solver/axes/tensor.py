"""Tensor parallelism: attention heads and FFN columns over t GPUs of a node."""
from solver.axes.divisors import divisors, nearest_divisor
from solver.domain.cluster import NodeGroup
from solver.domain.estimate import Reason
from solver.domain.layout import Layout
from solver.domain.model import Architecture
from solver.domain.problem import Problem

NAME = "tensor"


def legal_degrees(problem: Problem) -> tuple[int, ...]:
    """Degrees that divide heads and FFN width, agree with the KV heads, and fit some node group's nodes."""
    return tuple(t for t in divisors(problem.model.num_attention_heads)
                 if not model_violations(problem.model, t, None) and any(fits_nodes(g, t) for g in problem.cluster.node_groups))


def violations(problem: Problem, layout: Layout) -> tuple[Reason, ...]:
    """Broken rules of every stage."""
    found: list[Reason] = []
    for i, stage in enumerate(layout.stages):
        found += model_violations(problem.model, stage.tp, i)
        for name in stage.groups:
            group = problem.cluster.group(name)
            if not fits_nodes(group, stage.tp):
                found.append(Reason(code="tensor.node", stage=i, fix=f"tp {_nearest(group, stage.tp)}",
                                    message=f"tp {stage.tp} neither divides the {group.gpus_per_node} GPUs of a node of {name} nor is a multiple"))
    return tuple(found)


def fits_nodes(group: NodeGroup, tp: int) -> bool:
    """Whether groups of tp GPUs pack nodes (or NVLink domains wider than a node) without straddling them unevenly."""
    if tp > group.nodes * group.gpus_per_node:
        return False
    blocks = {group.gpus_per_node} | {t.size for t in group.tiers if t.name != "network" and t.size > group.gpus_per_node}
    return any(block % tp == 0 or tp % block == 0 for block in blocks)


def model_violations(model: Architecture, tp: int, stage: int | None) -> list[Reason]:
    """Heads, KV heads and FFN width against tp. The vocabulary is padded, so any tp suits it."""
    found = []
    heads, kv = model.num_attention_heads, model.kv_heads
    if heads % tp:
        found.append(Reason(code="tensor.heads", stage=stage, message=f"{heads} attention heads do not divide by tp {tp}",
                            fix=f"tp {nearest_divisor(heads, tp)}"))
    elif model.mla is None and kv % tp and tp % kv:
        found.append(Reason(code="tensor.kv_heads", stage=stage, message=f"{kv} KV heads neither divide by tp {tp} nor divide it",
                            fix=f"tp {nearest_divisor(kv, tp)}"))
    widths = [("FFN width", model.ffn_hidden_size)]
    if model.moe is not None:
        every = all(model.is_moe_layer(i) for i in range(model.num_layers))
        widths = [] if every else widths
        widths += [("shared experts' width", model.moe.shared_width)] if model.moe.shared_width else []
    for label, width in widths:
        if width % tp:
            found.append(Reason(code="tensor.ffn", stage=stage, message=f"{label} {width} does not divide by tp {tp}",
                                fix=f"tp {nearest_divisor(width, tp)}"))
    return found


def _nearest(group: NodeGroup, tp: int) -> int:
    return nearest_divisor(group.gpus_per_node, tp)
