"""An observed run: a layout with what was measured of it, and what the formulas say of the same."""
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from solver.cost.calibration import MEMORY, TIMES
from solver.cost.estimate import layout_for
from solver.cost.price import step_time_s
from solver.cost.responses import Response, response
from solver.cost.setting import setting
from solver.cost.stage_memory import memory_of
from solver.domain.calibration import Calibration, Predicted
from solver.domain.degrees import Strategy
from solver.domain.layout import Layout
from solver.domain.plan import Plan
from solver.domain.problem import Problem, fingerprint
from solver.errors import Fault, InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured run: step time in seconds, the largest allocated memory of any GPU in GiB, or one of them."""

    problem: Problem
    what: Strategy | Plan
    step_time_s: float | None = None
    peak_memory_gib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An observation, priced. `question` is equal for runs of one layout on one problem: repeats of each other."""

    question: str
    problem: Problem
    layout: Layout
    step_time_s: float | None
    peak_memory_gib: float | None
    time: Response | None                                  # None where no time was measured
    memory: Response | None
    archs: tuple[str, ...]
    gpus: int

    @property
    def experts(self) -> bool:
        return self.problem.model.moe is not None


def run_of(observation: Observation) -> Run:
    """Price an observation. Raises `InputError` where its layout has no price."""
    problem = replace(observation.problem, calibration=None, memory_margin=0.0)      # the margin changes neither figure
    way = "strategy" if isinstance(observation.what, Strategy) else "plan"
    layout, reasons = layout_for(problem, observation.what)
    if layout is None:
        raise InputError(*(Fault(pointer=f"/{way}", message=f"this layout cannot be priced: {r.message}", legal=r.fix) for r in reasons))
    if step_time_s(problem, layout) is None:
        raise InputError(Fault(pointer=f"/{way}/schedule", message=f"{layout.schedule} has no price, so that nothing can be learned from a run of it",
                               legal="a schedule that GET /v1/strategies calls priced"))
    groups = {name for stage in layout.stages for name in stage.groups}
    return Run(
        question=fingerprint([problem.fingerprint(), layout]), problem=problem, layout=layout, step_time_s=observation.step_time_s,
        peak_memory_gib=observation.peak_memory_gib,
        time=response(problem, TIMES, lambda p: step_time_s(p, layout) or 0.0) if observation.step_time_s is not None else None,
        memory=response(problem, MEMORY, lambda p: memory_of(p, layout).peak_gib) if observation.peak_memory_gib is not None else None,
        archs=tuple(sorted({setting(problem).machines[name].arch.name for name in groups})),
        gpus=layout.replicas * sum(s.tp * s.cp * s.dp for s in layout.stages))


def without_repeats(runs: Sequence[Run]) -> tuple[Run, ...]:
    """One run for each question, with the medians of what was measured; in the order in which the questions came."""
    by_question: dict[str, list[Run]] = {}
    for run in runs:
        by_question.setdefault(run.question, []).append(run)
    return tuple(_merged(same) for same in by_question.values())


def _merged(same: Sequence[Run]) -> Run:
    times = [r.step_time_s for r in same if r.step_time_s is not None]
    peaks = [r.peak_memory_gib for r in same if r.peak_memory_gib is not None]
    return replace(same[0], step_time_s=median(times) if times else None, peak_memory_gib=median(peaks) if peaks else None,
                   time=next((r.time for r in same if r.time is not None), None), memory=next((r.memory for r in same if r.memory is not None), None))


def predicted(run: Run, calibration: Calibration | None) -> Predicted:
    """What is predicted of a run's layout, with a calibration or without."""
    problem = replace(run.problem, calibration=calibration)
    return Predicted(step_time_s=step_time_s(problem, run.layout), peak_memory_gib=memory_of(problem, run.layout).peak_gib)
