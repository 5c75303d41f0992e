"""Rank order: which rank runs where, and which part of the model it holds.

Ranks run stage by stage; inside a stage pipeline by pipeline; inside a pipeline's stage in the order of its devices: tp fastest, then cp, then dp.
Where every stage has the same degrees this is rank = tp + TP * (cp + CP * (dp + DP * stage)), dp counting all pipelines: the order tp-cp-ep-dp-pp.
"""
from collections.abc import Iterator
from dataclasses import dataclass

from solver.domain.cluster import Cluster
from solver.domain.plan import Plan, Stage
from solver.domain.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """One process. `gpu` is the index of its GPU within the node; `dp` counts over all pipelines; `ep`, `etp`, `edp` place it among the experts."""

    rank: int
    host: str
    node_group: str
    node: int
    gpu: int
    pipeline: int
    stage: int
    tp: int
    cp: int
    dp: int
    ep: int
    etp: int
    edp: int
    layers: tuple[tuple[int, int], ...]


def host_name(cluster: Cluster, group: str, node: int) -> str:
    """The node's host name where the cluster gives one, else a placeholder such as h100-0."""
    names = cluster.group(group).hostnames
    return names[node] if names is not None and node < len(names) else f"{group}-{node}"


def rank_places(problem: Problem, plan: Plan) -> tuple[RankPlace, ...]:
    """Every process of the plan, by rank."""
    found: list[RankPlace] = []
    for stage in range(max(len(p.stages) for p in plan.pipelines)):
        column = [(i, p.stages[stage]) for i, p in enumerate(plan.pipelines) if stage < len(p.stages)]
        shared = len({_degrees(s) for _, s in column}) == 1
        start, groups = len(found), 0
        for pipeline, part in column:
            first = start if shared else len(found)
            for index, (group, node, gpu) in enumerate(_gpus(part)):
                place = len(found) - first
                found.append(RankPlace(
                    rank=len(found), host=host_name(problem.cluster, group, node), node_group=group, node=node, gpu=gpu,
                    pipeline=pipeline, stage=stage,
                    tp=index % part.tp, cp=index // part.tp % part.cp, dp=groups + index // (part.tp * part.cp),
                    etp=place % part.etp, ep=place // part.etp % part.ep, edp=place // (part.etp * part.ep), layers=part.layers))
            groups += part.dp
    return tuple(found)


def _degrees(stage: Stage) -> tuple[int, ...]:
    return stage.tp, stage.cp, stage.dp, stage.ep, stage.etp


def _gpus(stage: Stage) -> Iterator[tuple[str, int, int]]:
    for part in stage.devices:
        for gpu in part.gpus:
            yield part.node_group, part.node, gpu
