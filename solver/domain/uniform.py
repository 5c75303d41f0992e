"""A uniform strategy in counts, without naming a GPU: what pricing needs, whatever the size of the cluster."""
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from solver.domain.cluster import Cluster
from solver.domain.degrees import Recompute, Strategy
from solver.domain.estimate import Reason
from solver.domain.identity import Same
from solver.domain.layout import Edge, Layout, StageLayout
from solver.domain.packing import tensor_groups_available
from solver.domain.placement import batch_split, virtual_stage_layers
from solver.domain.problem import Problem

FRAMES_KEPT = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a uniform strategy's stages are before it is said how they run: layers, node groups, which neighbours share a block of the fabric."""

    layers: tuple[tuple[tuple[int, int], ...], ...]        # [stages][virtual stages] inclusive ranges
    groups: tuple[tuple[str, ...], ...]
    edges: tuple[Edge, ...]


def uniform_layout(problem: Problem, s: Strategy) -> tuple[Layout, tuple[Reason, ...]] | None:
    """The layout that `expand` and `layout_of` give, or None where GPUs have to be named.

    These are nodes that tensor-parallel groups do not fill, GPUs that are missing, strategies that cannot be laid out.
    """
    found = frame(problem, s)
    if found is None:
        return None
    micro_batches, reasons = batch_split(problem, s)
    stages = _stages(Same(found), s.tp, s.cp, s.ep, s.etp, s.recompute, s.zero_stage)
    return Layout(stages=stages, edges=found.edges, replicas=s.dp, micro_batches=micro_batches, micro_batch_size=s.micro_batch_size,
                  schedule=s.schedule, virtual_stages=s.virtual_stages, sequence_parallel=s.sequence_parallel, ulysses=s.ulysses or 1,
                  vocabulary_parallel_loss=s.vocabulary_parallel_loss, pipeline_vocabulary=s.pipeline_vocabulary, framework=s.framework,
                  slices=s.slices, offload=s.offload, shard_group=s.shard_group), reasons


@lru_cache(maxsize=FRAMES_KEPT)
def _stages(of: Same[Frame], tp: int, cp: int, ep: int, etp: int, recompute: Recompute, zero_stage: int) -> tuple[StageLayout, ...]:
    return tuple(StageLayout(layers=layers, tp=tp, cp=cp, dp=1, ep=ep, etp=etp, recompute=recompute, zero_stage=zero_stage, groups=groups)
                 for layers, groups in zip(of.value.layers, of.value.groups, strict=True))


def frame(problem: Problem, s: Strategy) -> Frame | None:
    """The frame of a strategy; None where GPUs have to be named, as in `uniform_layout`."""
    return _frame(Same(problem), s.tp, s.dp * s.cp, s.pp, s.virtual_stages, s.layers_per_stage)


@lru_cache(maxsize=FRAMES_KEPT)
def _frame(key: Same[Problem], tp: int, blocks_per_stage: int, pp: int, virtual_stages: int,
           layers_per_stage: tuple[int, ...] | None) -> Frame | None:
    problem, cluster = key.value, key.value.cluster
    if not _regular(cluster, tp) or sum(tensor_groups_available(g, tp) for g in cluster.node_groups) < blocks_per_stage * pp:
        return None
    layers, _ = virtual_stage_layers(problem.model.num_layers, Strategy(pp=pp, virtual_stages=virtual_stages, layers_per_stage=layers_per_stage))
    if layers is None:
        return None
    gpus = blocks_per_stage * tp
    spans = [(i * gpus, (i + 1) * gpus - 1) for i in range(pp)]        # first and last GPU of each stage, counted through the cluster
    ends = list(accumulate(g.gpus for g in cluster.node_groups))
    near = [Edge(same_node=False), Edge(same_node=True)]
    return Frame(layers=layers, groups=tuple(_groups(cluster, ends, *span) for span in spans),
                 edges=tuple(near[_one_block(cluster, ends, spans[i], spans[(i + 1) % pp])] for i in range(pp)))


def _regular(cluster: Cluster, tp: int) -> bool:
    """Tensor-parallel groups fill every node, or nodes fill every tensor-parallel group, and no GPU is missing."""
    return all(not g.unavailable_gpus and (g.gpus_per_node % tp == 0 or (tp % g.gpus_per_node == 0 and g.gpus % tp == 0))
               for g in cluster.node_groups)


def _index(ends: list[int], gpu: int) -> int:
    return bisect_right(ends, gpu)


def _groups(cluster: Cluster, ends: list[int], first: int, last: int) -> tuple[str, ...]:
    return tuple(sorted(cluster.node_groups[i].name for i in range(_index(ends, first), _index(ends, last) + 1)))


def _one_block(cluster: Cluster, ends: list[int], one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether both spans lie in one block of the fabric inside one node group (a node, or an NVLink domain of several)."""
    first, last = min(one[0], other[0]), max(one[1], other[1])
    at = _index(ends, first)
    if at != _index(ends, last):
        return False
    group, start = cluster.node_groups[at], ends[at] - cluster.node_groups[at].gpus
    size = max((t.size for t in group.tiers if t.name != "network"), default=group.gpus_per_node)
    return (first - start) // size == (last - start) // size
