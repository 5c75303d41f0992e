"""Where the step time goes: the parts of the slowest stage, the bubble as what remains of the pipeline, and the time after the drain."""
from solver.cost.pipeline import edges, layer_counts, sync_s, unit_spec
from solver.cost.unit import UnitCosts
from solver.cost.units import unit_costs
from solver.domain.estimate import TimeParts
from solver.domain.layout import Layout
from solver.domain.model import LayerClass
from solver.domain.problem import Problem

PARTS = ("compute_s", "tensor_comm_s", "context_comm_s", "expert_comm_s", "data_comm_s", "recompute_s")


def stage_parts(costs: UnitCosts, counts: dict[LayerClass, int], first: bool, last: bool) -> dict[str, float]:
    """Seconds of one micro-batch, forward and backward, on one stage, by cause."""
    found = {}
    for name in PARTS:
        value = sum(n * getattr(costs.layers[cls].parts, name) for cls, n in counts.items())
        found[name] = value + (getattr(costs.embedding.parts, name) if first else 0.0) + (getattr(costs.head.parts, name) if last else 0.0)
    return found


def after_drain(problem: Problem, layout: Layout) -> tuple[float, float]:
    """(seconds, of which optimizer) after the pipeline has drained, on the stage that takes longest."""
    worst, optimizer = 0.0, 0.0
    for j, stage in enumerate(layout.stages):
        costs, counts = unit_costs(problem, unit_spec(layout, stage)), layer_counts(problem, stage.layers)
        first, last = j == 0, j == layout.pp - 1
        seconds = [sync_s(piece, counts, first, last) for piece in costs.sync]
        if max(seconds) > worst:
            worst, optimizer = max(seconds), costs.optimizer_share * seconds[0]
    return worst, min(worst, optimizer)


def time_parts(problem: Problem, layout: Layout, pipeline_s: float) -> TimeParts:
    """The step by cause; `pipeline_s` is the time from first forward to last backward. Parts sum to the step time."""
    m, transfer = layout.micro_batches, edges(problem, layout)
    best: dict[str, float] = {}
    longest = -1.0
    for j, stage in enumerate(layout.stages):
        costs = unit_costs(problem, unit_spec(layout, stage))
        parts = stage_parts(costs, layer_counts(problem, stage.layers), j == 0, j == layout.pp - 1)
        crossings = layout.virtual_stages - (j == layout.pp - 1)
        parts["pipeline_comm_s"] = 2.0 * crossings * transfer[j]
        if sum(parts.values()) > longest:
            best, longest = parts, sum(parts.values())
    sync, optimizer = after_drain(problem, layout)
    busy = {name: m * value for name, value in best.items()}
    bubble = pipeline_s - sum(busy.values())
    if bubble < 0.0:                                       # rounding alone: the longest stage is busy m times its micro-batch
        busy["compute_s"] = max(0.0, busy["compute_s"] + bubble)
        bubble = 0.0
    busy["data_comm_s"] += sync - optimizer
    return TimeParts(**busy, bubble_s=bubble, optimizer_s=optimizer)
