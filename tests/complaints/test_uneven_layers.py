"""Layers that do not divide over the stages: all are placed, none twice, no stage is empty; and the fullest stage counts, not the average one."""
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.cost.estimate import estimate
from solver.domain.degrees import Strategy
from solver.domain.options import Constraints, SearchOptions
from solver.domain.placement import expand
from solver.search import driver
from tests.solver.cost.problems import SMALL, node_group, problem
from tests.solver.small_problems import small_problem


@given(layers=st.integers(1, 64), stages=st.integers(1, 16))
@settings(max_examples=60, deadline=None)
def test_every_layer_is_placed_once_whatever_the_number_of_stages(layers: int, stages: int) -> None:
    of = problem(replace(SMALL, num_layers=layers), (node_group(nodes=2),), global_batch_size=64)
    plan, reasons = expand(of, Strategy(pp=stages))
    if stages > layers:
        assert plan is None or reasons
        return
    assert plan is not None and not reasons
    held = [n for stage in plan.pipelines[0].stages for first, last in stage.layers for n in range(first, last + 1)]
    assert held == list(range(layers))
    assert len(plan.pipelines[0].stages) == stages and all(last >= first for s in plan.pipelines[0].stages for first, last in s.layers)


@given(data=st.data(), stages=st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_peak_memory_is_that_of_the_fullest_stage(data: st.DataObject, stages: int) -> None:
    counts = tuple(data.draw(st.lists(st.integers(1, 12), min_size=stages, max_size=stages)))
    of = problem(replace(SMALL, num_layers=sum(counts)), (node_group(nodes=2),), global_batch_size=64)
    memory = estimate(of, Strategy(pp=stages, layers_per_stage=counts)).memory
    assert memory is not None and len(memory.stages) == stages
    assert memory.peak_gib == max(s.total_gib for s in memory.stages)


@pytest.mark.parametrize("seed", range(4))
def test_layers_that_do_not_divide_have_no_even_plan_with_so_many_stages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launcher of even stages gets is a plan that it accepts, or none: never one whose layers do not divide."""
    monkeypatch.setattr(driver, "smallest_relaxation", lambda *_: None)
    of = small_problem(seed, 4)
    result = driver.search(of, "throughput", Constraints(tier="even"), SearchOptions(time_limit_s=60.0))
    if result.plan is not None:
        assert of.model.num_layers % len(result.plan.pipelines[0].stages) == 0
    else:
        assert result.reasons
