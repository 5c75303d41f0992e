"""Objectives other than time: budgets, bounds of interrupted searches, and the corners of prices."""
import itertools
from dataclasses import replace

import numpy as np
import pytest

from solver.domain.degrees import Strategy
from solver.domain.options import Constraints, Objective, SearchOptions
from solver.domain.problem import Problem
from solver.errors import NotCovered, NothingFound
from solver.search import driver
from solver.search.budget import Budget, most_value, rates_by_group
from solver.search.result import SearchResult
from tests.solver.small_problems import small_problem

PLAIN = next(p for p in (small_problem(seed) for seed in range(60, 90)) if len(p.cluster.node_groups) > 1)


def solved(problem: Problem, objective: Objective, allowed: Constraints = Constraints(), time_limit_s: float = 60.0) -> SearchResult:
    return driver.search(problem, objective, allowed, SearchOptions(time_limit_s=time_limit_s))


def priced(problem: Problem, *prices: float | None) -> Problem:
    groups = tuple(replace(g, price_per_gpu_hour=price) for g, price in zip(problem.cluster.node_groups, itertools.cycle(prices), strict=False))
    return replace(problem, cluster=replace(problem.cluster, node_groups=groups))


@pytest.mark.parametrize("seed", range(20))
def test_no_mix_of_gpus_within_the_budgets_is_worth_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 4))
    gpus, values = rng.integers(0, 6, groups), rng.uniform(0, 3, groups)
    budgets = [Budget(rates={str(g): float(rng.choice([0.0, 1.0, 2.5])) for g in range(groups)}, limit=float(rng.uniform(0, 12)))
               for _ in range(int(rng.integers(0, 3)))]
    bound = most_value(values, gpus.astype(float), *rates_by_group(budgets, [str(g) for g in range(groups)]))
    for mix in itertools.product(*(range(n + 1) for n in gpus)):
        if all(sum(b.rates[str(g)] * n for g, n in enumerate(mix)) <= b.limit for b in budgets):
            assert float(values @ np.array(mix)) <= bound + 1e-9


def test_gpus_that_cost_nothing_are_used_and_the_fastest_of_them_win() -> None:
    free = solved(priced(PLAIN, 0.0, 2.0), "cost")
    alone = solved(PLAIN, "throughput", Constraints(node_groups=(PLAIN.cluster.node_groups[0].name,)))
    assert free.outcome == alone.outcome
    if free.predicted is not None and alone.predicted is not None and free.predicted.price_per_step == 0.0:
        assert free.predicted.step_time_s == pytest.approx(alone.predicted.step_time_s)


def test_gpus_of_unknown_price_are_left_out_and_none_with_a_price_is_refused() -> None:
    known = solved(priced(PLAIN, None, 2.0), "cost")
    if known.plan is not None:
        first = PLAIN.cluster.node_groups[0].name
        assert first not in {d.node_group for p in known.plan.pipelines for s in p.stages for d in s.devices}
    with pytest.raises(NotCovered) as caught:
        solved(priced(PLAIN, None), "cost")
    assert [f.pointer for f in caught.value.faults] == ["/objective"]


@pytest.mark.parametrize("objective", ["energy", "cost", "fewest_gpus"])
def test_an_interrupted_search_keeps_a_bound_that_holds(objective: Objective) -> None:
    """The clock moves a second with every look at it, so that each limit stops the search somewhere else."""
    whole, stopped = solved(PLAIN, objective), 0
    assert whole.outcome == "optimal" and whole.bound_worth is not None and whole.bound_s is None and whole.gap == 0.0
    for looks in (100, 200, 400, 800, 1600):
        ticks = itertools.count()
        try:
            little = driver.search(PLAIN, objective, Constraints(), SearchOptions(time_limit_s=looks), clock=lambda ticks=ticks: float(next(ticks)))
        except NothingFound:
            continue
        stopped += little.outcome == "feasible"
        assert little.bound_worth is not None and little.bound_worth <= whole.bound_worth * (1 + 1e-9)
    assert stopped


def test_the_best_of_listed_strategies_is_the_best_by_the_objective() -> None:
    listed = Constraints(candidates=(Strategy(), Strategy(dp=2), Strategy(pp=2)))
    fast, thrifty = (solved(PLAIN, objective, listed) for objective in ("throughput", "energy"))
    if fast.predicted is not None and thrifty.predicted is not None:
        assert (thrifty.predicted.energy_per_step_j or 0.0) <= (fast.predicted.energy_per_step_j or 0.0)
        assert thrifty.bound_worth == pytest.approx(thrifty.predicted.energy_per_step_j)


def test_a_target_that_no_plan_meets_is_named() -> None:
    found = solved(PLAIN, "throughput", Constraints(max_step_time_s=1e-6))
    assert found.outcome == "infeasible" and [r.code for r in found.reasons] == ["constraints.max_step_time_s"]
    assert found.relaxation is not None and found.relaxation.change.startswith("constraints.max_step_time_s")
