"""The price of a layout: time, memory, and every reason why it would not run. The same formulas for search, estimate, timeline and judge."""
from collections.abc import Mapping, Sequence

from solver.axes.registry import violations
from solver.cost.breakdown import after_drain, time_parts
from solver.cost.bubble import CLOSED_FORMS, closed_form_s
from solver.cost.confidence import confidence_of
from solver.cost.flops import gpus_by_group, model_flops, peak_flops_s
from solver.cost.parameters import parameter_counts
from solver.cost.stages import chunk_times
from solver.cost.setting import Setting, setting
from solver.cost.stage_memory import memory_of, memory_reasons, risk_of
from solver.cost.uncovered import missing
from solver.domain.estimate import Confidence, Estimate, Memory, ModelFacts, Reason, Risk, TimeParts
from solver.domain.layout import Layout
from solver.domain.problem import Problem
from solver.simulate.orders import ORDERS
from solver.simulate.timeline import ChunkTime, makespan
from solver.units import hours_from_s


def step_time_s(problem: Problem, layout: Layout) -> float | None:
    """Seconds of one optimizer step: the pipeline from first forward to last backward, and the longest time after the drain of any stage.

    Exact by the schedule's recurrence where it is simulated, a closed form for previewed schedules, None where a schedule is not priced.
    """
    pipeline = pipeline_s(problem, layout)
    return None if pipeline is None else pipeline + after_drain(problem, layout)[0]


def pipeline_s(problem: Problem, layout: Layout) -> float | None:
    """Seconds from the first forward to the last backward; interleaved micro-batches that do not fill their last round by the closed form."""
    chunks = chunk_times(problem, layout)
    if layout.schedule in CLOSED_FORMS or (layout.schedule == "interleaved" and layout.micro_batches % layout.pp):
        return closed_form_s(layout.schedule, chunks, layout.micro_batches)
    if layout.schedule not in ORDERS:
        return None
    if layout.schedule != "interleaved":
        chunks = tuple((merged(stage),) for stage in chunks)
    return makespan(layout.schedule, chunks, layout.micro_batches)


def merged(chunks: Sequence[ChunkTime]) -> ChunkTime:
    """All chunks of a stage as one, for schedules without virtual stages."""
    if len(chunks) == 1:
        return chunks[0]
    return ChunkTime(forward_s=sum(c.forward_s for c in chunks), backward_s=sum(c.backward_s for c in chunks),
                     weight_gradient_s=sum(c.weight_gradient_s for c in chunks))


def price(problem: Problem, layout: Layout) -> Estimate:
    """Everything that a layout is predicted to do. A layout that breaks a rule is priced as far as its numbers go.

    feasible: no rule broken and no stage over its memory. MFU: model FLOPs B s (6 P + 12 L a d_h s), P all parameters that a token passes, both
    embeddings included, attention in full, over the sum of the used GPUs' peaks in the workload's precision.
    """
    shared = setting(problem)
    facts = parameter_counts(problem.model)
    reasons: tuple[Reason, ...] = violations(problem, layout) + missing(shared, layout)
    memory = memory_of(problem, layout)
    risk = risk_of(problem, memory)
    reasons += memory_reasons(problem, layout, memory)
    pipeline = pipeline_s(problem, layout)
    sequences = layout.replicas * layout.micro_batches * layout.micro_batch_size
    return finished(shared, facts, layout, memory=memory, risk=risk, reasons=reasons, confidence=confidence_of(shared, layout), sequences=sequences,
                    step=None if pipeline is None else pipeline + after_drain(problem, layout)[0],
                    parts=None if pipeline is None else time_parts(problem, layout, pipeline))


def finished(shared: Setting, facts: ModelFacts, layout: Layout, *, memory: Memory, risk: Risk, reasons: tuple[Reason, ...], confidence: Confidence,
             sequences: int, step: float | None, parts: TimeParts | None) -> Estimate:
    """What follows from a step time in seconds: rates, utilisation, price, energy. `layout` says which GPUs are in use."""
    by_group = gpus_by_group(layout)
    gpus = sum(layout.replicas * s.tp * s.cp * s.dp for s in layout.stages)
    groups = {name: shared.machines[name].group for name in by_group}
    price_per_hour = _together(by_group, {name: g.price_per_gpu_hour for name, g in groups.items()})
    power_w = _together(by_group, {name: g.device.power_w for name, g in groups.items()})
    if step is None:
        return Estimate(model=facts, feasible=False, fits_memory=risk != "over", risk=risk, step_time_s=None, tokens_per_s=None,
                        tokens_per_s_per_gpu=None, model_tflops_per_gpu=None, mfu=None, memory=memory, time=None, confidence=confidence,
                        reasons=reasons, gpus=gpus, price_per_hour=price_per_hour, power_w=power_w)
    tokens = sequences * shared.workload.seq_len / step
    flops_s = model_flops(shared, facts, sequences) / step
    return Estimate(model=facts, feasible=not reasons, fits_memory=risk != "over", risk=risk, step_time_s=step, tokens_per_s=tokens,
                    tokens_per_s_per_gpu=tokens / gpus, model_tflops_per_gpu=flops_s / gpus / 1e12, mfu=flops_s / peak_flops_s(shared, by_group),
                    memory=memory, time=parts, confidence=confidence, reasons=reasons, gpus=gpus,
                    price_per_hour=price_per_hour, price_per_step=None if price_per_hour is None else price_per_hour * hours_from_s(step),
                    power_w=power_w, energy_per_step_j=None if power_w is None else power_w * step)


def _together(by_group: Mapping[str, float], figures: Mapping[str, float | None]) -> float | None:
    """Sum of a figure of one GPU over the GPUs in use; None where some group has none."""
    total = 0.0
    for name, count in by_group.items():
        figure = figures[name]
        if figure is None:
            return None
        total += count * figure
    return total
