"""The seam between the cost model and the search: what one GPU of a stage spends per layer, affine in the layers that the stage holds.

A *unit* is a way to run layers: where, at which degrees. Its costs per micro-batch do not depend on which layers it gets, only on how many
of each class; so a stage's time and memory are sums of these numbers, and the search may use them as integer tables.
"""
from dataclasses import dataclass, field

from solver.domain.degrees import Framework, Recompute
from solver.domain.estimate import TimeParts
from solver.domain.layout import Holders
from solver.domain.model import LayerClass


def hiding_rounds(stages: int, virtual_stages: int) -> float:
    """Micro-batches of a stage's computation that run after a layer's last backward (or before its first forward), at most.

    Without virtual stages the last micro-batch alone: 1. With v of them on p stages a chunk is done p (v - 1) chunk passes before the drain ends:
    p (v - 1) / v micro-batches.
    """
    return 1.0 if virtual_stages == 1 else max(1.0, stages * (virtual_stages - 1) / virtual_stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSpec:
    """How a stage runs: everything that its costs depend on, but not its layers and not its position."""

    groups: tuple[str, ...]                                # node groups its GPUs lie in (sorted); several: the slowest member's speed
    tp: int
    cp: int
    ulysses: int
    dp: int                                                # groups that split each micro-batch inside a replica
    replicas: int                                          # pipelines; gradients are averaged over replicas * dp * cp ranks
    ep: int
    etp: int
    micro_batch_size: int                                  # sequences, before the split by dp
    micro_batches: int
    recompute: Recompute
    zero_stage: int
    sequence_parallel: bool
    vocabulary_parallel_loss: bool
    framework: Framework | None
    shard_group: int | None = None
    hiding_rounds: float = 1.0                             # micro-batches whose computation gradient and weight traffic may hide behind
    holders: Holders | None = None                         # where the other pipelines hold these layers, if pipelines are unlike

    @property
    def gpus_per_replica(self) -> int:
        return self.tp * self.cp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCost:
    """One layer, the embedding, or the head (final norm, output layer, loss) on one GPU, per micro-batch.

    forward_s, backward_s in seconds (backward holds recompute and both gradients); weight_gradient_s is the share of backward_s that computes weight
    gradients. `parts` splits forward_s + backward_s. Bytes are per GPU: weights, gradients and optimizer once; activation_bytes per micro-batch in
    flight.
    """

    forward_s: float = 0.0
    backward_s: float = 0.0
    weight_gradient_s: float = 0.0
    parts: TimeParts = field(default_factory=TimeParts)
    weights_bytes: float = 0.0
    gradients_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    activation_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCosts:
    """What a stage of a unit costs by layer, and the bytes that it has for them; see `UnitCosts`."""

    layers: dict[LayerClass, PartCost]
    buffers_bytes: float
    head_buffers_bytes: float
    capacity_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPiece:
    """One affine lower envelope of the time after the pipeline has drained: exposed gradient traffic, optimizer step, parameter gathering.

    seconds = constant_s + Σ layers per_layer_s[class] + embedding_s if the stage is first + head_s if it is last - shared_ends_s if it is both.
    A stage's time is the maximum of its pieces.
    """

    constant_s: float
    per_layer_s: dict[LayerClass, float]
    embedding_s: float
    head_s: float
    shared_ends_s: float = 0.0                             # to subtract where a stage is first and last: tied weights count once there


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCosts:
    """All that a stage of this unit costs, by what it holds."""

    spec: UnitSpec
    layers: dict[LayerClass, PartCost]
    embedding: PartCost                                    # first stage
    head: PartCost                                         # last stage
    logits_bytes: float                                    # last stage, one micro-batch
    buffers_bytes: float                                   # temporaries of one layer, gathered layers, recompute working set: any stage
    head_buffers_bytes: float                              # the same on the last stage, beside its logits: less what reuses their bytes
    capacity_bytes: float                                  # what the allocator may hold: device less context, communication buffers, fragmentation
    sync: tuple[SyncPiece, ...]
    shared_ends: PartCost = field(default_factory=PartCost)     # bytes to subtract where a stage is first and last: tied weights are held once there
    optimizer_share: float = 0.0                           # share of the first sync piece that is the optimizer step, for the breakdown
