"""A uniform strategy in counts, without naming a GPU: what pricing needs, whatever the size of the cluster."""
from bisect import bisect_right
from itertools import accumulate

from solver.domain.cluster import Cluster
from solver.domain.degrees import Strategy
from solver.domain.estimate import Reason
from solver.domain.layout import Edge, Layout, StageLayout
from solver.domain.packing import tensor_groups_available
from solver.domain.placement import batch_split, virtual_stage_layers
from solver.domain.problem import Problem


def uniform_layout(problem: Problem, s: Strategy) -> tuple[Layout, tuple[Reason, ...]] | None:
    """The layout that `expand` and `layout_of` give, or None where GPUs have to be named.

    These are nodes that tensor-parallel groups do not fill, GPUs that are missing, strategies that cannot be laid out.
    """
    cluster, blocks_per_stage = problem.cluster, s.dp * s.cp
    if not _regular(cluster, s.tp) or sum(tensor_groups_available(g, s.tp) for g in cluster.node_groups) < blocks_per_stage * s.pp:
        return None
    layers, reasons = virtual_stage_layers(problem.model.num_layers, s)
    if layers is None:
        return None
    micro_batches, more = batch_split(problem, s)
    gpus = blocks_per_stage * s.tp
    spans = [(i * gpus, (i + 1) * gpus - 1) for i in range(s.pp)]      # first and last GPU of each stage, counted through the cluster
    ends = list(accumulate(g.gpus for g in cluster.node_groups))
    stages = tuple(StageLayout(layers=layers[i], tp=s.tp, cp=s.cp, dp=1, ep=s.ep, etp=s.etp, recompute=s.recompute, zero_stage=s.zero_stage,
                               groups=_groups(cluster, ends, *spans[i])) for i in range(s.pp))
    edges = tuple(Edge(same_node=_one_block(cluster, ends, spans[i], spans[(i + 1) % s.pp])) for i in range(s.pp))
    return Layout(stages=stages, edges=edges, replicas=s.dp, micro_batches=micro_batches, micro_batch_size=s.micro_batch_size, schedule=s.schedule,
                  virtual_stages=s.virtual_stages, sequence_parallel=s.sequence_parallel, ulysses=s.ulysses or 1,
                  vocabulary_parallel_loss=s.vocabulary_parallel_loss, pipeline_vocabulary=s.pipeline_vocabulary, framework=s.framework,
                  slices=s.slices, offload=s.offload, shard_group=s.shard_group), reasons + more


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
