"""Where the step time goes: the parts of the slowest stage, the bubble as what remains of the pipeline, and the time after the drain."""
from solver.cost.pipeline import edges
from solver.cost.stages import PARTS, stage_parts, stages
from solver.domain.estimate import TimeParts
from solver.domain.layout import Layout
from solver.domain.problem import Problem


def after_drain(problem: Problem, layout: Layout) -> tuple[float, float]:
    """(seconds, of which optimizer) after the pipeline has drained, on the stage that takes longest."""
    worst, optimizer = 0.0, 0.0
    for stage in stages(problem, layout):
        if stage.sync_s > worst:
            worst, optimizer = stage.sync_s, stage.optimizer_s
    return worst, min(worst, optimizer)


def time_parts(problem: Problem, layout: Layout, pipeline_s: float, drained: tuple[float, float] | None = None) -> TimeParts:
    """The step by cause; `pipeline_s` is the time from first forward to last backward, `drained` what follows, as `after_drain` has it, where other
    pipelines have a say in that. Parts sum to the step time."""
    m, transfer = layout.micro_batches, edges(problem, layout)
    best: tuple[float, ...] = ()
    longest = -1.0
    for j, stage in enumerate(stages(problem, layout)):
        crossings = layout.virtual_stages - (j == layout.pp - 1)
        parts = (*stage_parts(stage), 2.0 * crossings * transfer[j])
        seconds = sum(parts)
        if seconds > longest:
            best, longest = parts, seconds
    sync, optimizer = after_drain(problem, layout) if drained is None else drained
    busy = {name: m * value for name, value in zip((*PARTS, "pipeline_comm_s"), best, strict=True)}
    bubble = pipeline_s - sum(busy.values())
    if bubble < 0.0:                                       # rounding alone: the longest stage is busy m times its micro-batch
        busy["compute_s"] = max(0.0, busy["compute_s"] + bubble)
        bubble = 0.0
    busy["data_comm_s"] += sync - optimizer
    return TimeParts(**busy, bubble_s=bubble, optimizer_s=optimizer)
