"""One step of a plan's pipeline as a Chrome trace."""
from typing import Any

from solver.cost.price import pipeline_s
from solver.cost.stages import chunk_times
from solver.domain.layout import Layout, StageLayout
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.domain.reading import read
from solver.errors import Fault, NotCovered
from solver.simulate.orders import ORDERS
from solver.simulate.timeline import intervals
from solver.simulate.trace import shown_micro_batches, trace_events


def timeline(problem: Problem, plan: Plan) -> dict[str, Any]:
    """Forward and backward of every micro-batch on every stage of one pipeline (the slowest where they differ),
    transfers included in their durations.

    Long steps are cut to fewer micro-batches, which the trace says; gradient synchronisation and optimizer step follow the trace's end.
    """
    found, reasons = read(problem, plan)
    if found is None:
        raise NotCovered(*(Fault(pointer="/plan", message=r.message, legal=r.fix) for r in reasons))
    layout = found if isinstance(found, Layout) else max(found.distinct, key=lambda pipeline: pipeline_s(problem, pipeline) or 0.0)
    if layout.schedule not in ORDERS:
        raise NotCovered(Fault(pointer="/plan/schedule", message=f"{layout.schedule} has no timeline", legal=", ".join(ORDERS)))
    shown = shown_micro_batches(layout.micro_batches, layout.pp, layout.virtual_stages)
    names = [_name(i, stage) for i, stage in enumerate(layout.stages)]
    return trace_events(intervals(layout.schedule, chunk_times(problem, layout), shown), names, shown, layout.micro_batches)


def _name(index: int, stage: StageLayout) -> str:
    layers = ", ".join(f"{first}-{last}" for first, last in stage.layers)
    return f"stage {index}: layers {layers} on {'+'.join(stage.groups)}"
