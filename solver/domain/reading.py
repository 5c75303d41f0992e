"""A posted plan read back as counts, with every fault of its shape and placement named."""
from collections.abc import Sequence
from dataclasses import replace

from solver.domain.cluster import NodeGroup
from solver.domain.estimate import Reason
from solver.domain.layout import Edge, Holders, Layout, StageLayout, UnlikeLayout
from solver.domain.packing import Gpu
from solver.domain.placement import stage_layout
from solver.domain.plan import Pipeline, Plan, Stage
from solver.domain.problem import Problem


def read(problem: Problem, plan: Plan) -> tuple[Layout | UnlikeLayout | None, tuple[Reason, ...]]:
    """The plan in counts, whether its pipelines are alike or not; None with the reasons where it names GPUs that are not there."""
    return layout_of(problem, plan) if alike(plan) else unlike_layout_of(problem, plan)


def layout_of(problem: Problem, plan: Plan) -> tuple[Layout | None, tuple[Reason, ...]]:
    """A plan of equal pipelines in counts, or None with the reasons where it names GPUs that are not there or replicas that differ."""
    reasons = list(_unlike_replicas(plan))
    groups = {g.name: g for g in problem.cluster.node_groups}
    ranks, faults = _ranks(plan, groups)
    reasons += faults
    if ranks is None or reasons:
        return None, tuple(reasons)
    first = plan.pipelines[0]
    stages = []
    for i, stage in enumerate(first.stages):
        gpus = [gpu for replica in ranks for gpu in replica[i]]
        reasons += _placement(i, stage, gpus, groups)
        stages.append(stage_layout(stage, tuple(sorted({g[0] for g in gpus}))))
    edges = tuple(Edge(same_node=_shared_block(ranks, i, (i + 1) % len(stages), groups)) for i in range(len(stages)))
    if plan.virtual_stages != len(first.stages[0].layers):
        reasons.append(Reason(code="pipeline.virtual_stages",
                              message=f"virtual_stages is {plan.virtual_stages}, the stages list {len(first.stages[0].layers)} ranges",
                              fix=f"virtual_stages {len(first.stages[0].layers)}"))
    if any(len(s.groups) > 1 for s in stages) and len({(s.tp, s.dp) for s in stages}) > 1:
        reasons.append(Reason(code="placement.straddle_unlike", message="a stage straddles node groups while stages differ in tp or dp",
                              fix="stages within one node group each, or the same tp and dp in every stage: "
                                  "launchers of unlike stages bind each to one device type"))
    return _layout(plan, first, tuple(stages), edges, len(plan.pipelines)), tuple(reasons)


def _layout(plan: Plan, pipeline: Pipeline, stages: tuple[StageLayout, ...], edges: tuple[Edge, ...], replicas: int) -> Layout:
    return Layout(stages=stages, edges=edges, replicas=replicas, micro_batches=pipeline.micro_batches,
                  micro_batch_size=plan.micro_batch_size, schedule=plan.schedule, virtual_stages=len(pipeline.stages[0].layers),
                  sequence_parallel=plan.sequence_parallel, ulysses=plan.ulysses or 1, vocabulary_parallel_loss=plan.vocabulary_parallel_loss,
                  pipeline_vocabulary=plan.pipeline_vocabulary, framework=plan.framework, slices=plan.slices, offload=plan.offload,
                  shard_group=plan.shard_group)


def unlike_layout_of(problem: Problem, plan: Plan) -> tuple[UnlikeLayout | None, tuple[Reason, ...]]:
    """A plan of pipelines that differ, in counts: each is placed and counted by itself."""
    groups = {g.name: g for g in problem.cluster.node_groups}
    ranks, faults = _ranks(plan, groups)
    if ranks is None:
        return None, tuple(faults)
    reasons = _ragged(plan)
    if reasons:
        return None, tuple(reasons)
    everywhere = [gpu for pipeline in ranks for stage in pipeline for gpu in stage]
    holders = Holders(pipelines=len(plan.pipelines), groups=tuple(sorted({g[0] for g in everywhere})),
                      same_node=len({_block(gpu, groups) for gpu in everywhere}) == 1)
    found: dict[Layout, Layout] = {}
    pipelines = []
    for pipeline, row in zip(plan.pipelines, ranks, strict=True):
        stages = []
        for i, (stage, gpus) in enumerate(zip(pipeline.stages, row, strict=True)):
            reasons += _placement(i, stage, gpus, groups)
            stages.append(replace(stage_layout(stage, tuple(sorted({g[0] for g in gpus}))), holders=holders))
        edges = tuple(Edge(same_node=_shared_block([row], i, (i + 1) % len(stages), groups)) for i in range(len(stages)))
        layout = _layout(plan, pipeline, tuple(stages), edges, 1)
        pipelines.append(found.setdefault(layout, layout))
    return UnlikeLayout(pipelines=tuple(pipelines)), tuple(reasons)


def _ragged(plan: Plan) -> list[Reason]:
    wrong = [len(s.layers) for p in plan.pipelines for s in p.stages if len(s.layers) != plan.virtual_stages]
    if not wrong:
        return []
    return [Reason(code="pipeline.virtual_stages", message=f"virtual_stages is {plan.virtual_stages}, a stage lists {wrong[0]} ranges",
                   fix=f"{plan.virtual_stages} ranges in every stage of every pipeline")]


def alike(plan: Plan) -> bool:
    """Whether all pipelines have the same stages and as many micro-batches."""
    first = plan.pipelines[0]
    shapes = [_shape(s) for s in first.stages]
    return all(p.micro_batches == first.micro_batches and [_shape(s) for s in p.stages] == shapes for p in plan.pipelines[1:])


def _shape(stage: Stage) -> tuple[object, ...]:
    return (stage.layers, stage.tp, stage.dp, stage.cp, stage.ep, stage.etp, stage.recompute, stage.zero_stage)


def _unlike_replicas(plan: Plan) -> list[Reason]:
    first = plan.pipelines[0]
    for i, pipeline in enumerate(plan.pipelines):
        if pipeline.micro_batches != first.micro_batches or [_shape(s) for s in pipeline.stages] != [_shape(s) for s in first.stages]:
            return [Reason(code="pipelines.unequal",
                           message=f"pipeline {i} differs from pipeline 0 in its stages or its {pipeline.micro_batches} micro-batches",
                           fix="pipelines that are alike")]
    if len({len(s.layers) for s in first.stages}) > 1:
        return [Reason(code="pipeline.virtual_stages", message="stages have different numbers of layer ranges",
                       fix="one range per virtual stage, the same number in every stage")]
    return []


def _ranks(plan: Plan, groups: dict[str, NodeGroup]) -> tuple[list[list[list[Gpu]]] | None, list[Reason]]:
    """GPUs by replica and stage, in rank order."""
    reasons: list[Reason] = []
    seen: set[Gpu] = set()
    gone = {(g.name, u.node, u.gpu) for g in groups.values() for u in g.unavailable_gpus}
    ranks = []
    for pipeline in plan.pipelines:
        row = []
        for i, stage in enumerate(pipeline.stages):
            gpus = [(d.node_group, d.node, g) for d in stage.devices for g in d.gpus]
            if len(gpus) != stage.tp * stage.cp * stage.dp:
                reasons.append(Reason(code="placement.gpu_count", stage=i, fix=f"{stage.tp * stage.cp * stage.dp} GPUs",
                                      message=f"{len(gpus)} GPUs for tp {stage.tp} x cp {stage.cp} x dp {stage.dp}"))
            for gpu in gpus:
                reasons += _gpu_fault(i, gpu, groups, gone, seen)
                seen.add(gpu)
            if len(reasons) > 20:
                return None, reasons
            row.append(gpus)
        ranks.append(row)
    return (ranks if not reasons else None), reasons


def _gpu_fault(stage: int, gpu: Gpu, groups: dict[str, NodeGroup], gone: set[Gpu], seen: set[Gpu]) -> list[Reason]:
    name, node, index = gpu
    group = groups.get(name)
    if group is None:
        return [Reason(code="placement.unknown_group", stage=stage, message=f"node group {name!r} is not in the cluster",
                       fix=f"one of {', '.join(groups)}")]
    if node >= group.nodes or index >= group.gpus_per_node:
        return [Reason(code="placement.no_such_gpu", stage=stage, message=f"{name} has no node {node}, GPU {index}",
                       fix=f"node 0 to {group.nodes - 1}, GPU 0 to {group.gpus_per_node - 1}")]
    if gpu in gone:
        return [Reason(code="placement.unavailable", stage=stage, message=f"GPU {index} of node {node} in {name} is marked unavailable",
                       fix="another GPU")]
    if gpu in seen:
        return [Reason(code="placement.used_twice", stage=stage, message=f"GPU {index} of node {node} in {name} is used twice", fix="each GPU once")]
    return []


def _placement(i: int, stage: Stage, gpus: Sequence[Gpu], groups: dict[str, NodeGroup]) -> list[Reason]:
    """Rules of placement that the cost model counts on: tensor-parallel groups inside a node, a stage packed into as few nodes as it needs."""
    reasons = []
    for first in range(0, len(gpus), stage.tp):
        block = gpus[first:first + stage.tp]
        nodes = {g[:2] for g in block}
        per_node = groups[block[0][0]].gpus_per_node
        if len(nodes) > max(1, stage.tp // per_node):
            reasons.append(Reason(code="placement.tensor_group_split", stage=i, fix="GPUs of one node, or of whole nodes",
                                  message=f"a tensor-parallel group of {stage.tp} lies on {len(nodes)} nodes"))
            break
    visits: list[tuple[str, int]] = []
    for gpu in gpus:
        if not visits or visits[-1] != gpu[:2]:
            visits.append(gpu[:2])
    for name in {g[0] for g in gpus}:
        used, group = sum(g[0] == name for g in gpus), groups[name]
        fit = max(1, group.gpus_per_node // stage.tp) * min(stage.tp, group.gpus_per_node)
        if group.unavailable_gpus:
            continue
        if sum(v[0] == name for v in visits) > -(-used // fit) + 1:
            reasons.append(Reason(code="placement.scattered", stage=i, fix="ranks of a stage node by node, on as few nodes as they need",
                                  message=f"{used} GPUs of {name} lie on {sum(v[0] == name for v in visits)} stretches of nodes "
                                          f"where {-(-used // fit)} suffice"))
    return reasons


def _shared_block(ranks: list[list[list[Gpu]]], a: int, b: int, groups: dict[str, NodeGroup]) -> bool:
    """Whether stages a and b, all replicas together, lie in one block of the fabric inside their node group (a node, or an NVLink domain of several).

    Stages that share nodes replica by replica do not count: a stage's replicas are priced as packed side by side.
    """
    return len({_block(gpu, groups) for replica in ranks for gpu in (*replica[a], *replica[b])}) == 1


def _block(gpu: Gpu, groups: dict[str, NodeGroup]) -> tuple[str, int]:
    group = groups[gpu[0]]
    inner = [t.size for t in group.tiers if t.name != "network"]
    return gpu[0], (gpu[1] * group.gpus_per_node + gpu[2]) // (max(inner) if inner else group.gpus_per_node)
