"""Sums of unit costs over the layers that a stage holds, always in the same order, and the boundaries between stages."""
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

from solver.cost.setting import Setting, memoised, setting
from solver.cost.unit import SyncPiece, UnitCosts, UnitSpec, hiding_rounds
from solver.cost.units import edge_seconds
from solver.domain.identity import Same
from solver.domain.layout import Layout, StageLayout
from solver.domain.model import Architecture, LayerClass
from solver.domain.problem import Problem

Counts = Mapping[LayerClass, int]
LAYOUTS_KEPT = 16
RANGES_KEPT = 16_384


def unit_spec(layout: Layout, stage: StageLayout) -> UnitSpec:
    """A stage of a layout as a unit."""
    return UnitSpec(groups=stage.groups, tp=stage.tp, cp=stage.cp, ulysses=layout.ulysses, dp=stage.dp, ep=stage.ep, etp=stage.etp,
                    replicas=layout.replicas if stage.holders is None else stage.holders.pipelines, holders=stage.holders,
                    micro_batch_size=layout.micro_batch_size, micro_batches=layout.micro_batches, recompute=stage.recompute,
                    zero_stage=stage.zero_stage,
                    sequence_parallel=layout.sequence_parallel, vocabulary_parallel_loss=layout.vocabulary_parallel_loss, framework=layout.framework,
                    shard_group=layout.shard_group, hiding_rounds=hiding_rounds(layout.pp, layout.virtual_stages))


def unit_specs(layout: Layout) -> tuple[UnitSpec, ...]:
    """Every stage as a unit, one object where they are equal."""
    return _specs(Same(layout))


@lru_cache(maxsize=LAYOUTS_KEPT)
def _specs(key: Same[Layout]) -> tuple[UnitSpec, ...]:
    layout = key.value
    made: dict[tuple[object, ...], UnitSpec] = {}
    found = []
    for s in layout.stages:
        like = (s.groups, s.tp, s.cp, s.dp, s.ep, s.etp, s.recompute, s.zero_stage, s.holders)
        spec = made.get(like)
        if spec is None:
            spec = made[like] = unit_spec(layout, s)
        found.append(spec)
    return tuple(found)


def layer_counts(problem: Problem, ranges: Sequence[tuple[int, int]]) -> dict[LayerClass, int]:
    """Layers of each class in inclusive ranges, in the order of the model's classes; indices outside the model count as its last layer's class."""
    return by_class(setting(problem).classes, layer_sizes(problem, tuple(ranges)))


def layer_sizes(problem: Problem, ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, ...], ...]:
    """The same by range: [ranges][classes of the model]."""
    return _sizes(problem)(ranges)


def by_class(classes: tuple[LayerClass, ...], sizes: Sequence[tuple[int, ...]]) -> dict[LayerClass, int]:
    """Layers of each class that is there, over all ranges."""
    counts = {cls: sum(size[i] for size in sizes) for i, cls in enumerate(classes)}
    return {cls: n for cls, n in counts.items() if n}


def _count(shared: Setting) -> Callable[[tuple[tuple[int, int], ...]], tuple[tuple[int, ...], ...]]:
    before = [list(accumulate((layer == cls for layer in shared.layers), initial=0)) for cls in shared.classes]      # [class][layer]
    end, final = len(shared.layers), shared.classes.index(shared.layers[-1])

    def ahead(i: int, of: int) -> int:
        return before[i][min(of, end)] + (max(0, of - end) if i == final else 0)

    @lru_cache(maxsize=RANGES_KEPT)
    def sizes(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(ahead(i, last + 1) - ahead(i, min(first, last + 1)) for i in range(len(before))) for first, last in ranges)

    return sizes


_sizes = memoised(_count)


def total(costs: UnitCosts, counts: Counts, first: bool, last: bool, attribute: str) -> float:
    """Sum of one number of `PartCost` over a stage (or chunk): classes in the model's order, then embedding, then head.

    The one place where stages are summed: the search's tables sum in this order too, so that both agree to the last bit.
    """
    value = 0.0
    for cls, n in counts.items():
        value += n * float(getattr(costs.layers[cls], attribute))
    if first:
        value += getattr(costs.embedding, attribute)
    if last:
        value += getattr(costs.head, attribute)
    if first and last:
        value -= getattr(costs.shared_ends, attribute)
    return value


def sync_s(piece: SyncPiece, counts: Counts, first: bool, last: bool) -> float:
    """Seconds of one piece of the time after the drain for a stage that holds `counts` layers."""
    value = piece.constant_s
    for cls, n in counts.items():
        value += n * piece.per_layer_s[cls]
    if first:
        value += piece.embedding_s
    if last:
        value += piece.head_s
    if first and last:
        value -= piece.shared_ends_s
    return value


def tensors_across(model: Architecture, before: int) -> int:
    """Tensors of b s h that cross a boundary with `before` layers ahead of it: inside the decoder of an encoder-decoder the encoder's output travels
    along, to every stage that attends to it, and its gradient back."""
    return 2 if 0 < model.encoder_layers < before else 1


def edges(problem: Problem, layout: Layout) -> tuple[float, ...]:
    """Visible seconds of the boundary behind every stage, one way; behind the last only with virtual stages (back to the first)."""
    return _edges(Same(problem), Same(layout))


@lru_cache(maxsize=LAYOUTS_KEPT)
def _edges(key: Same[Problem], of: Same[Layout]) -> tuple[float, ...]:
    problem, layout = key.value, of.value
    specs, found = unit_specs(layout), []
    made: dict[tuple[int, int, bool, int], float] = {}
    for j, spec in enumerate(specs):
        behind = j + 1 if j + 1 < len(specs) else 0
        if len(specs) == 1 or (behind == 0 and layout.virtual_stages == 1):
            found.append(0.0)
            continue
        near, across = layout.edges[j].same_node, tensors_across(problem.model, layout.stages[j].layers[0][1] + 1)
        like = (id(spec), id(specs[behind]), near, across)
        if like not in made:
            made[like] = edge_seconds(problem, spec, specs[behind], near, layout.virtual_stages, across)
        found.append(made[like])
    return tuple(found)
