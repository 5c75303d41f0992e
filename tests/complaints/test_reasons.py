"""An answer without a plan says why; what the request pins is obeyed or refused."""
from dataclasses import replace

import pytest

from solver.domain.options import Constraints, SearchOptions
from solver.domain.problem import Problem
from solver.search import driver
from solver.verify import judge
from tests.solver.small_problems import small_problem

PINS = (Constraints(tp=(1,)), Constraints(tp=(2,)), Constraints(dp=(1,), tp=(1,)), Constraints(recompute=("full",)), Constraints(zero_stage=(3,)),
        Constraints(micro_batch_size=(2,)), Constraints(max_pp=1))


@pytest.fixture(autouse=True)
def no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would help is not asked here: it takes longest."""
    monkeypatch.setattr(driver, "smallest_relaxation", lambda *_: None)


def starved(problem: Problem) -> Problem:
    """The same with a twentieth of the memory."""
    groups = tuple(replace(g, device=replace(g.device, memory_gib=g.device.memory_gib / 20, reported_memory_gib=g.device.reported_memory_gib / 20))
                   for g in problem.cluster.node_groups)
    return replace(problem, cluster=replace(problem.cluster, node_groups=groups))


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_always_has_a_reason_and_a_fix(seed: int) -> None:
    result = driver.search(starved(small_problem(seed)), "throughput", Constraints(), SearchOptions(time_limit_s=60.0))
    assert result.outcome == "infeasible" and result.plan is None
    assert result.reasons and all(r.code and r.message and r.fix for r in result.reasons)


@pytest.mark.parametrize("pin", PINS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_pinned_is_obeyed_or_refused(seed: int, pin: Constraints) -> None:
    problem = small_problem(seed, 4)
    result = driver.search(problem, "throughput", pin, SearchOptions(time_limit_s=60.0))
    if result.plan is None:
        assert result.outcome == "infeasible" and result.reasons
    else:
        assert result.predicted is not None and judge(problem, result.plan, result.predicted, pin) == ()
