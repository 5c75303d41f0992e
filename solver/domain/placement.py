"""From degrees to GPUs and back: the only place where a layout is laid onto nodes, and a plan is read back as counts.

GPUs are taken in the order of nodes; a tensor-parallel group never straddles nodes unless it is made of whole nodes. Within a stage, ranks run
tp, cp, dp from the fastest and replicas follow each other, so that a stage of all replicas is one packed block.
"""
from collections.abc import Callable, Iterator, Sequence

from solver.domain.degrees import Strategy, even_split
from solver.domain.estimate import Reason
from solver.domain.layout import Layout, StageLayout
from solver.domain.packing import Blocks, Gpu, GroupPool, Near, may_share, other_packings, pack
from solver.domain.packing import tensor_groups_available as tensor_groups_available
from solver.domain.plan import DeviceSlice, Pipeline, Plan, Stage
from solver.domain.problem import Problem

def expand(problem: Problem, strategy: Strategy) -> tuple[Plan | None, tuple[Reason, ...]]:
    """A uniform strategy as a plan: layers evenly, GPUs in the order of the node groups given, extra GPUs idle."""
    s = strategy
    layers, reasons = virtual_stage_layers(problem.model.num_layers, s)
    if layers is None:
        return None, reasons
    need = s.dp * s.cp * s.pp
    blocks = _blocks_in_order(problem, s.tp, need)
    if blocks is None:
        have = sum(tensor_groups_available(g, s.tp) for g in problem.cluster.node_groups)
        fix = f"at most {have} tensor-parallel groups of {s.tp}" if have else "a tp that divides the node, or whole nodes"
        return None, (Reason(code="cluster.too_small", fix=fix,
                             message=f"tp {s.tp} x cp {s.cp} x dp {s.dp} x pp {s.pp} needs {need} tensor-parallel groups of {s.tp} GPUs; "
                                     f"the cluster has {have}"),)
    micro_batches, more = batch_split(problem, s)
    reasons += more
    pipelines = []
    for replica in range(s.dp):
        stages = []
        for stage in range(s.pp):
            first = (stage * s.dp + replica) * s.cp
            gpus = [gpu for block in blocks[first:first + s.cp] for gpu in block]
            stages.append(Stage(layers=layers[stage], tp=s.tp, dp=1, cp=s.cp, ep=s.ep, etp=s.etp, recompute=s.recompute, zero_stage=s.zero_stage,
                                devices=tuple(_slices(gpus))))
        pipelines.append(Pipeline(micro_batches=micro_batches, stages=tuple(stages)))
    return Plan(pipelines=tuple(pipelines), schedule=s.schedule, micro_batch_size=s.micro_batch_size, virtual_stages=s.virtual_stages,
                sequence_parallel=s.sequence_parallel, ulysses=s.ulysses, slices=s.slices, offload=s.offload, shard_group=s.shard_group,
                vocabulary_parallel_loss=s.vocabulary_parallel_loss, pipeline_vocabulary=s.pipeline_vocabulary, framework=s.framework), reasons


def batch_split(problem: Problem, s: Strategy) -> tuple[int, tuple[Reason, ...]]:
    """Micro-batches per pipeline, and the reason where the global batch does not divide."""
    batch, share = getattr(problem.workload, "global_batch_size", 0), s.dp * s.micro_batch_size
    if batch and batch % share == 0:
        return batch // share, ()
    return max(1, (batch or 1) // share), (Reason(
        code="data.batch_indivisible", fix=f"a divisor of {batch}",
        message=f"global batch {batch} does not divide into dp {s.dp} x micro-batch {s.micro_batch_size}"),)


def virtual_stage_layers(num_layers: int, s: Strategy) -> tuple[tuple[tuple[tuple[int, int], ...], ...] | None, tuple[Reason, ...]]:
    """Layer ranges by stage and virtual stage, or None and why not."""
    chunks = s.pp * s.virtual_stages
    if chunks > num_layers:
        return None, (Reason(code="pipeline.too_many_stages",
                             message=f"pp {s.pp} x virtual stages {s.virtual_stages} = {chunks} parts for {num_layers} layers",
                             fix=f"pp x virtual_stages of at most {num_layers}"),)
    per_stage = s.layers_per_stage
    if per_stage is None:
        per_stage = even_split(num_layers, s.pp)
    if len(per_stage) != s.pp or sum(per_stage) != num_layers:
        return None, (Reason(code="pipeline.layers_missing", fix=f"{s.pp} counts that sum to {num_layers}",
                             message=f"layers_per_stage has {len(per_stage)} entries that sum to {sum(per_stage)}, "
                                     f"for {s.pp} stages and {num_layers} layers"),)
    if min(per_stage) < s.virtual_stages:
        return None, (Reason(code="pipeline.empty_stage",
                             message=f"a stage of {min(per_stage)} layers cannot be cut into {s.virtual_stages} virtual stages",
                             fix=f"at least {s.virtual_stages} layers in every stage"),)
    split = [even_split(n, s.virtual_stages) for n in per_stage]
    sizes = tuple(split[stage][chunk] for chunk in range(s.virtual_stages) for stage in range(s.pp))
    return layers_by_stage(sizes, s.pp), ()


def layers_by_stage(sizes: Sequence[int], stages: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Layer ranges of every stage from the sizes of the virtual stages, given in the order that a micro-batch passes them."""
    ranges: list[list[tuple[int, int]]] = [[] for _ in range(stages)]
    first = 0
    for i, size in enumerate(sizes):
        ranges[i % stages].append((first, first + size - 1))
        first += size
    return tuple(tuple(r) for r in ranges)


def _blocks_in_order(problem: Problem, tp: int, need: int) -> list[list[Gpu]] | None:
    if sum(tensor_groups_available(g, tp) for g in problem.cluster.node_groups) < need:
        return None
    blocks: list[list[Gpu]] = []
    for group in problem.cluster.node_groups:
        pool = GroupPool(group)
        while len(blocks) < need and (block := pool.block(tp)) is not None:
            blocks.append(block)
    return blocks if len(blocks) == need else None


def place(problem: Problem, layout: Layout) -> Plan | None:
    """A plan for a layout, or None where it does not fit the cluster."""
    return next((plan for plan in placements(problem, layout) if plan is not None), None)


def placements(problem: Problem, layout: Layout, hopeful: Callable[[Near], bool] = lambda near: True) -> Iterator[Plan | None]:
    """Plans for a layout that differ in which neighbouring stages share a node (or NVLink domain), the tightly packed one first.

    `hopeful`: which sets of neighbours side by side are worth having, see `packing.other_packings`. Ends with None where there may be more than were
    tried.
    """
    first = pack(problem, layout)
    if first is not None:
        yield _plan(layout, first)
    if first is None or any(may_share({g.name: g for g in problem.cluster.node_groups}, layout)):
        for devices in other_packings(problem, layout, hopeful):
            yield _plan(layout, devices) if devices is not None else None


def _plan(layout: Layout, devices: dict[int, Blocks]) -> Plan:
    pipelines = []
    for replica in range(layout.replicas):
        stages = []
        for i, stage in enumerate(layout.stages):
            width = stage.dp * stage.cp
            gpus = [gpu for block in devices[i][replica * width:(replica + 1) * width] for gpu in block]
            stages.append(Stage(layers=stage.layers, tp=stage.tp, dp=stage.dp, cp=stage.cp, ep=stage.ep, etp=stage.etp, recompute=stage.recompute,
                                zero_stage=stage.zero_stage, devices=tuple(_slices(gpus))))
        pipelines.append(Pipeline(micro_batches=layout.micro_batches, stages=tuple(stages)))
    return Plan(pipelines=tuple(pipelines), schedule=layout.schedule, micro_batch_size=layout.micro_batch_size, virtual_stages=layout.virtual_stages,
                sequence_parallel=layout.sequence_parallel, ulysses=layout.ulysses if layout.ulysses > 1 else None, slices=layout.slices,
                offload=layout.offload, shard_group=layout.shard_group, vocabulary_parallel_loss=layout.vocabulary_parallel_loss,
                pipeline_vocabulary=layout.pipeline_vocabulary, framework=layout.framework)


def _slices(gpus: list[Gpu]) -> Iterator[DeviceSlice]:
    start = 0
    for i in range(1, len(gpus) + 1):
        if i == len(gpus) or gpus[i][:2] != gpus[start][:2]:
            yield DeviceSlice(node_group=gpus[start][0], node=gpus[start][1], gpus=tuple(g for _, _, g in gpus[start:i]))
            start = i


def stage_layout(stage: Stage, groups: tuple[str, ...]) -> StageLayout:
    """A plan's stage in counts."""
    return StageLayout(layers=stage.layers, tp=stage.tp, cp=stage.cp, dp=stage.dp, ep=stage.ep, etp=stage.etp, recompute=stage.recompute,
                       zero_stage=stage.zero_stage, groups=groups)
