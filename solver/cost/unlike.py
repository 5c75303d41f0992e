"""The price of pipelines that are not alike: each by its own recurrence, and one synchronisation when the slowest has drained.

Gradients of a layer are averaged over all pipelines, whatever stages and tensor degrees hold it in each, every micro-batch with the same weight. What
differs from equal pipelines is where the ranks lie: apart, so that they meet over the slowest link between any two node groups of the plan (see
`communicators.apart_path`). The step ends when the slowest pipeline has drained and the longest synchronisation of any stage after that is done.
"""
from collections.abc import Iterator

from solver.axes.registry import violations
from solver.cost.breakdown import after_drain, time_parts
from solver.cost.confidence import confidence_of
from solver.cost.parameters import parameter_counts
from solver.cost.price import finished, pipeline_s, price
from solver.cost.setting import setting
from solver.cost.stage_memory import fullest, memory_of, memory_reasons, risk_of
from solver.cost.uncovered import missing
from solver.domain.estimate import Estimate, Memory, Reason
from solver.domain.layout import Layout, UnlikeLayout
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload

SCHEDULES = ("gpipe", "1f1b")


def price_any(problem: Problem, layout: Layout | UnlikeLayout) -> Estimate:
    """The price of a layout, whether its pipelines are alike or not."""
    return price(problem, layout) if isinstance(layout, Layout) else price_unlike(problem, layout)


def price_unlike(problem: Problem, unlike: UnlikeLayout) -> Estimate:
    """As `price` has it for equal pipelines. Stages are counted through all pipelines, in the order of the plan."""
    shared, joined = setting(problem), unlike.joined
    memory = _memory(problem, unlike)
    reasons = tuple(_reasons(problem, unlike)) + missing(shared, joined)
    seconds = {id(p): pipeline_s(problem, p) for p in unlike.distinct}
    times = [s for s in seconds.values() if s is not None]
    slowest = max(unlike.distinct, key=lambda p: seconds[id(p)] or 0.0)
    drained = max((after_drain(problem, p) for p in unlike.distinct), key=lambda d: d[0])
    span = max(times) if len(times) == len(seconds) else None
    sequences = sum(p.micro_batches * p.micro_batch_size for p in unlike.pipelines)
    return finished(shared, parameter_counts(problem.model), joined, memory=memory, risk=risk_of(problem, memory), reasons=reasons,
                    confidence=confidence_of(shared, joined), sequences=sequences, step=None if span is None else span + drained[0],
                    parts=None if span is None else time_parts(problem, slowest, span, drained))


def _memory(problem: Problem, unlike: UnlikeLayout) -> Memory:
    found = {id(p): memory_of(problem, p).stages for p in unlike.distinct}
    stages = tuple(stage for p in unlike.pipelines for stage in found[id(p)])
    worst = fullest(stages)
    return Memory(peak_gib=worst.total_gib, capacity_gib=worst.capacity_gib, stages=stages)


def _reasons(problem: Problem, unlike: UnlikeLayout) -> Iterator[Reason]:
    """What every pipeline breaks by itself, and what they break together."""
    for pipeline in unlike.distinct:
        yield from violations(problem, pipeline)
        yield from memory_reasons(problem, pipeline, memory_of(problem, pipeline))
    yield from _batch(problem, unlike)
    yield from _together(unlike)


def _batch(problem: Problem, unlike: UnlikeLayout) -> Iterator[Reason]:
    shares = [p.micro_batches for p in unlike.pipelines]
    done = sum(shares) * unlike.pipelines[0].micro_batch_size
    if isinstance(problem.workload, TrainingWorkload) and done != problem.workload.global_batch_size:
        yield Reason(code="data.batch_indivisible", fix=f"micro-batches that sum to {problem.workload.global_batch_size} sequences",
                     message=f"pipelines of {min(shares)} to {max(shares)} micro-batches take {done} sequences, "
                             f"the global batch is {problem.workload.global_batch_size}")


def _together(unlike: UnlikeLayout) -> Iterator[Reason]:
    """What unlike pipelines cannot be: launchers of them shard optimizer states at most, and run plain schedules on stages of one device type."""
    first, stages = unlike.pipelines[0], unlike.joined.stages
    yield Reason(code="pipelines.unequal", message="pipelines that differ are priced, not planned by this version", fix="pipelines that are alike")
    if first.schedule not in SCHEDULES:
        yield Reason(code="pipelines.unequal_schedule", message=f"pipelines that differ under schedule {first.schedule}", fix="schedule 1f1b")
    if first.framework is not None:
        yield Reason(code="pipelines.unequal_launcher", message=f"{first.framework} runs equal pipelines only",
                     fix="no framework, or pipelines that are alike")
    if first.shard_group is not None:
        yield Reason(code="pipelines.unequal_shards", message=f"shard_group {first.shard_group} with pipelines that differ",
                     fix="no shard_group: states are sharded over all pipelines")
    zero = {s.zero_stage for s in stages}
    if max(zero) > 1 or len(zero) > 1:
        yield Reason(code="pipelines.unequal_zero", message=f"zero_stage {', '.join(map(str, sorted(zero)))} with pipelines that differ",
                     fix="zero_stage 1 in every stage")
    for name in ("cp", "ep", "etp"):
        values = sorted({getattr(s, name) for s in stages})
        if len(values) > 1:
            yield Reason(code="pipelines.unequal_degrees", message=f"pipelines have {name} {', '.join(map(str, values))}",
                         fix=f"{name} {values[0]} in every stage of every pipeline")
    if any(s.dp > 1 for s in stages):
        yield Reason(code="pipelines.unequal_width", message="a stage of a pipeline among unlike ones splits its micro-batches (dp > 1)",
                     fix="dp 1: more pipelines in its place")
    if any(len(s.groups) > 1 for s in stages):
        yield Reason(code="pipelines.unequal_straddle", message="a stage of a pipeline among unlike ones straddles node groups",
                     fix="every stage within one node group")
