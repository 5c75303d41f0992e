"""The stages of a layout by what they cost: most are alike, so that each sum over layers is made once for all of them, and once for all layouts.

What a stage costs, but for its boundaries and its place in the pipeline, follows from its unit, the layers of each class in its chunks, and whether
it is the first and the last.
"""
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from solver.cost.pipeline import Counts, by_class, edges, layer_sizes, sync_s, total, unit_specs
from solver.cost.setting import Setting, memoised
from solver.cost.unit import UnitCosts, UnitSpec
from solver.cost.units import unit_costs
from solver.domain.identity import Same
from solver.domain.layout import Layout
from solver.domain.problem import Problem
from solver.simulate.timeline import ChunkTime
from solver.units import gib_from_bytes

STAGES_KEPT = 32_768
LAYOUTS_KEPT = 16
PARTS_KEPT = 4_096
PARTS = ("compute_s", "tensor_comm_s", "context_comm_s", "expert_comm_s", "data_comm_s", "recompute_s")
Sizes = tuple[tuple[int, ...], ...]                        # [chunks][classes of the model] layers


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """What a stage costs without its boundaries. Times of chunks are (forward, backward, weight gradient) of one micro-batch."""

    chunks: tuple[tuple[float, float, float], ...]
    unit: UnitCosts
    counts: Counts
    first: bool
    last: bool
    sync_s: float                                          # after the drain
    optimizer_s: float                                     # of that
    states_gib: tuple[float, float, float]                 # weights, gradients, optimizer
    activation_bytes: float                                # of one micro-batch in flight
    logits_gib: float
    buffers_gib: float
    capacity_gib: float


def stages(problem: Problem, layout: Layout) -> tuple[StageCosts, ...]:
    """Every stage's costs, in order; one object where they are alike."""
    return _of_layout(Same(problem), Same(layout))


@lru_cache(maxsize=LAYOUTS_KEPT)
def _of_layout(key: Same[Problem], of: Same[Layout]) -> tuple[StageCosts, ...]:
    problem, layout = key.value, of.value
    costs, last = _table(problem), layout.pp - 1
    return tuple(costs(spec, layer_sizes(problem, stage.layers), j == 0, j == last)
                 for j, (spec, stage) in enumerate(zip(unit_specs(layout), layout.stages, strict=True)))


def _build(shared: Setting) -> Callable[[UnitSpec, Sizes, bool, bool], StageCosts]:
    return lru_cache(maxsize=STAGES_KEPT)(lambda spec, sizes, first, last: _summed(shared, unit_costs(shared.problem, spec), sizes, first, last))


_table = memoised(_build)


def _summed(shared: Setting, costs: UnitCosts, sizes: Sizes, first: bool, last: bool) -> StageCosts:
    counts, final = by_class(shared.classes, sizes), len(sizes) - 1

    def whole(attribute: str) -> float:
        return total(costs, counts, first, last, attribute)

    made: dict[tuple[tuple[int, ...], bool, bool], tuple[float, float, float]] = {}

    def chunk(size: tuple[int, ...], very_first: bool, very_last: bool) -> tuple[float, float, float]:
        key = size, very_first, very_last
        if key not in made:
            made[key] = _chunk(costs, by_class(shared.classes, (size,)), very_first, very_last)
        return made[key]

    sync = [sync_s(piece, counts, first, last) for piece in costs.sync]
    return StageCosts(
        chunks=tuple(chunk(size, first and c == 0, last and c == final) for c, size in enumerate(sizes)), unit=costs, counts=counts, first=first,
        last=last, sync_s=max(sync), optimizer_s=costs.optimizer_share * sync[0],
        states_gib=(gib_from_bytes(max(0.0, whole("weights_bytes"))), gib_from_bytes(max(0.0, whole("gradients_bytes"))),
                    gib_from_bytes(max(0.0, whole("optimizer_bytes")))),
        activation_bytes=whole("activation_bytes"), logits_gib=gib_from_bytes(costs.logits_bytes if last else 0.0),
        buffers_gib=gib_from_bytes(costs.head_buffers_bytes if last else costs.buffers_bytes), capacity_gib=gib_from_bytes(costs.capacity_bytes))


def _chunk(costs: UnitCosts, counts: Counts, first: bool, last: bool) -> tuple[float, float, float]:
    return (total(costs, counts, first, last, "forward_s"), total(costs, counts, first, last, "backward_s"),
            total(costs, counts, first, last, "weight_gradient_s"))


def stage_parts(stage: StageCosts) -> tuple[float, ...]:
    """Seconds of one micro-batch, forward and backward, by cause, as PARTS; transfers over the boundaries left out."""
    return _parts(Same(stage))


@lru_cache(maxsize=PARTS_KEPT)
def _parts(of: Same[StageCosts]) -> tuple[float, ...]:
    stage = of.value
    return tuple(_part(stage.unit, stage.counts, stage.first, stage.last, name) for name in PARTS)


def _part(costs: UnitCosts, counts: Counts, first: bool, last: bool, name: str) -> float:
    value = sum(n * getattr(costs.layers[cls].parts, name) for cls, n in counts.items())
    return float(value + (getattr(costs.embedding.parts, name) if first else 0.0) + (getattr(costs.head.parts, name) if last else 0.0))


def chunk_times(problem: Problem, layout: Layout) -> tuple[tuple[ChunkTime, ...], ...]:
    """Seconds of every chunk, [stage][virtual stage]: its layers, embedding in the very first, head in the very last.

    A boundary is charged to the stage before it, once to the forward (send) and once to the backward (receive) of every chunk that has a successor.
    """
    made: dict[tuple[tuple[float, float, float], float], ChunkTime] = {}
    found, last_stage = [], layout.pp - 1
    for j, (stage, edge) in enumerate(zip(stages(problem, layout), edges(problem, layout), strict=True)):
        final, row = len(stage.chunks) - 1, []
        for c, chunk in enumerate(stage.chunks):
            behind = 0.0 if j == last_stage and c == final else edge
            time = made.get((chunk, behind))
            if time is None:
                time = made[chunk, behind] = ChunkTime(forward_s=chunk[0] + behind, backward_s=chunk[1] + behind, weight_gradient_s=chunk[2])
            row.append(time)
        found.append(tuple(row))
    return tuple(found)
