"""Time to accuracy: the batch size is chosen with the plan, and nothing of any listed size ends sooner."""
import itertools
from dataclasses import replace

import pytest

from solver.cost.estimate import estimate
from solver.domain.degrees import Strategy
from solver.domain.options import BatchPoint, Constraints, SearchOptions
from solver.domain.problem import Problem
from solver.errors import NotCovered, NothingFound
from solver.search import driver
from solver.search.result import SearchResult
from solver.verify import judge
from tests.solver.small_problems import small_problem
from tests.solver.test_optimality import best_by_enumeration

PLAIN = next(p for p in (small_problem(seed, 3) for seed in range(60, 90)) if len(p.cluster.node_groups) > 1)


def with_curve(problem: Problem, *curve: tuple[int, int]) -> Problem:
    return replace(problem, batch_efficiency=tuple(BatchPoint(global_batch_size=b, samples=n) for b, n in curve))


def solved(problem: Problem, allowed: Constraints = Constraints(), time_limit_s: float = 120.0) -> SearchResult:
    return driver.search(problem, "time_to_accuracy", allowed, SearchOptions(time_limit_s=time_limit_s, alternatives=2))


@pytest.fixture(autouse=True)
def answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "smallest_relaxation", lambda *_: None)


@pytest.mark.parametrize("seed", range(70, 75))
def test_no_plan_of_any_size_ends_sooner(seed: int) -> None:
    of = with_curve(small_problem(seed, 3), (2, 1_001), (6, 1_400), (4, 1_100))
    found = solved(of)
    best = min(best_by_enumeration(seed, of.with_batch(p.global_batch_size), Constraints(), 150) * p.steps for p in of.batch_efficiency)
    if found.plan is None or found.predicted is None or found.predicted.step_time_s is None:
        assert found.outcome == "infeasible" and best == float("inf")
        return
    answered = of.of_plan(found.plan)
    steps = {p.global_batch_size: p.steps for p in of.batch_efficiency}[answered.workload.global_batch_size]
    whole_s = steps * found.predicted.step_time_s
    assert found.outcome == "optimal" and found.gap == 0.0 and whole_s <= best * (1 + 1e-9)
    assert found.bound_worth == pytest.approx(whole_s) and found.objective == "time_to_accuracy"
    assert estimate(answered, found.plan) == found.predicted and judge(answered, found.plan, found.predicted) == ()


def test_flat_curves_want_large_batches_and_steep_ones_small() -> None:
    """What a larger batch gains per sample must exceed what it takes more of: the step times of both sizes tell at which curve the choice turns."""
    small_s, large_s = (solved(with_curve(PLAIN, (b, 10**6))).bound_worth for b in (2, 8))
    assert small_s is not None and large_s is not None and large_s < small_s
    turn = small_s / large_s
    for factor, wanted in ((0.99 * turn, 8), (1.01 * turn, 2)):
        found = solved(with_curve(PLAIN, (2, 10**6), (8, int(10**6 * factor))))
        assert found.plan is not None
        assert PLAIN.workload.kind == "training"
        assert sum(p.micro_batches for p in found.plan.pipelines) * found.plan.micro_batch_size == wanted


def test_an_interrupted_search_keeps_a_bound_that_holds() -> None:
    of = with_curve(PLAIN, (2, 1_001), (6, 1_400), (4, 1_100))
    whole, stopped = solved(of), 0
    assert whole.bound_worth is not None
    for looks in (100, 200, 400, 800):
        ticks = itertools.count()
        try:
            little = driver.search(of, "time_to_accuracy", Constraints(), SearchOptions(time_limit_s=looks),
                                   clock=lambda ticks=ticks: float(next(ticks)))
        except NothingFound:
            continue
        stopped += little.outcome == "feasible"
        assert little.bound_worth is not None and little.bound_worth <= whole.bound_worth * (1 + 1e-9)
    assert stopped


def test_without_a_curve_and_with_listed_strategies_it_is_refused() -> None:
    for of, allowed, pointer in ((PLAIN, Constraints(), "/batch_efficiency"),
                                 (with_curve(PLAIN, (2, 10)), Constraints(candidates=(Strategy(),)), "/constraints/candidates")):
        with pytest.raises(NotCovered) as caught:
            solved(of, allowed)
        assert [f.pointer for f in caught.value.faults] == [pointer]
