"""From a layout to the chunks of a pipeline: sums of unit costs over the layers that each stage holds, always in the same order."""
from collections.abc import Mapping, Sequence

from solver.cost.setting import setting
from solver.cost.unit import SyncPiece, UnitCosts, UnitSpec, hiding_rounds
from solver.cost.units import edge_seconds, unit_costs
from solver.domain.layout import Layout, StageLayout
from solver.domain.model import Architecture, LayerClass
from solver.domain.problem import Problem
from solver.simulate.timeline import ChunkTime

Counts = Mapping[LayerClass, int]


def unit_spec(layout: Layout, stage: StageLayout) -> UnitSpec:
    """A stage of a layout as a unit."""
    return UnitSpec(groups=stage.groups, tp=stage.tp, cp=stage.cp, ulysses=layout.ulysses, dp=stage.dp, replicas=layout.replicas, ep=stage.ep,
                    etp=stage.etp,
                    micro_batch_size=layout.micro_batch_size, micro_batches=layout.micro_batches, recompute=stage.recompute,
                    zero_stage=stage.zero_stage,
                    sequence_parallel=layout.sequence_parallel, vocabulary_parallel_loss=layout.vocabulary_parallel_loss, framework=layout.framework,
                    shard_group=layout.shard_group, hiding_rounds=hiding_rounds(layout.pp, layout.virtual_stages))


def layer_counts(problem: Problem, ranges: Sequence[tuple[int, int]]) -> dict[LayerClass, int]:
    """Layers of each class in inclusive ranges, in the order of the model's classes; indices outside the model count as its last layer's class."""
    shared = setting(problem)
    if len(shared.classes) == 1:
        total = sum(last - first + 1 for first, last in ranges)
        return {shared.classes[0]: total} if total else {}
    counts = dict.fromkeys(shared.classes, 0)
    final = len(shared.layers) - 1
    for first, last in ranges:
        for i in range(first, last + 1):
            counts[shared.layers[min(i, final)]] += 1
    return {cls: n for cls, n in counts.items() if n}


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
    specs = [unit_spec(layout, stage) for stage in layout.stages]
    found = []
    for j, spec in enumerate(specs):
        behind = j + 1 if j + 1 < len(specs) else 0
        if len(specs) == 1 or (behind == 0 and layout.virtual_stages == 1):
            found.append(0.0)
        else:
            across = tensors_across(problem.model, layout.stages[j].layers[0][1] + 1)
            found.append(edge_seconds(problem, spec, specs[behind], layout.edges[j].same_node, layout.virtual_stages, across))
    return tuple(found)


def chunk_times(problem: Problem, layout: Layout) -> tuple[tuple[ChunkTime, ...], ...]:
    """Seconds of every chunk, [stage][virtual stage]: its layers, embedding in the very first, head in the very last.

    A boundary is charged to the stage before it, once to the forward (send) and once to the backward (receive) of every chunk that has a successor.
    """
    transfer = edges(problem, layout)
    last_stage = layout.pp - 1
    found = []
    for j, stage in enumerate(layout.stages):
        costs = unit_costs(problem, unit_spec(layout, stage))
        last_chunk = len(stage.layers) - 1
        chunks = []
        for c, span in enumerate(stage.layers):
            first, last = j == 0 and c == 0, j == last_stage and c == last_chunk
            counts = layer_counts(problem, (span,))
            edge = 0.0 if last else transfer[j]
            chunks.append(ChunkTime(forward_s=total(costs, counts, first, last, "forward_s") + edge,
                                    backward_s=total(costs, counts, first, last, "backward_s") + edge,
                                    weight_gradient_s=total(costs, counts, first, last, "weight_gradient_s")))
        found.append(tuple(chunks))
    return tuple(found)


