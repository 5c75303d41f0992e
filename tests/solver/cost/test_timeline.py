"""A plan's timeline has its stages and, uncut, its makespan."""
from dataclasses import replace

import pytest

from solver.cost.stages import chunk_times
from solver.cost.timeline import timeline
from solver.domain.degrees import Strategy
from solver.domain.reading import layout_of
from solver.errors import NotCovered
from solver.simulate.timeline import makespan
from tests.solver.exporters.plans import problem, uneven, uniform


def test_timeline_ends_with_the_makespan_and_names_its_stages() -> None:
    of = problem()
    plan = uneven(of, [13, 12, 9, 6])
    layout, _ = layout_of(of, plan)
    assert layout is not None
    events = timeline(of, plan)["traceEvents"]
    end_s = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X") / 1e6
    assert end_s == pytest.approx(makespan("1f1b", chunk_times(of, layout), 64), rel=1e-6)
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name"] == [
        "stage 0: layers 0-12 on fast", "stage 1: layers 13-24 on fast", "stage 2: layers 25-33 on slow", "stage 3: layers 34-39 on slow"]


def test_interleaved_plans_show_their_virtual_stages() -> None:
    of = problem()
    plan = uniform(of, Strategy(tp=4, pp=4, dp=2, virtual_stages=2, schedule="interleaved"))
    assert {e["args"]["virtual_stage"] for e in timeline(of, plan)["traceEvents"] if e["ph"] == "X"} == {0, 1}


def test_what_cannot_be_simulated_is_refused() -> None:
    of = problem()
    with pytest.raises(NotCovered, match="zb-h1"):
        timeline(of, replace(uneven(of, [20, 20]), schedule="zb-h1"))
    plan = uneven(of, [20, 20])
    with pytest.raises(NotCovered):
        timeline(of, replace(plan, pipelines=(plan.pipelines[0], replace(plan.pipelines[0], micro_batches=1))))
