"""Tiers and launchers: their best plans against enumeration, their order, and what each row of the launchers forbids."""
from dataclasses import replace

import pytest

from solver.cost.estimate import estimate
from solver.domain.launchers import LAUNCHERS, TIERS, Launcher, Tier, next_tier
from solver.domain.options import Constraints, Engine, SearchOptions
from solver.domain.problem import Problem
from solver.search import driver
from solver.search.result import SearchResult
from solver.verify import judge
from tests.solver.small_problems import small_problem, uniform_strategies

SEEDS = range(4)
CP_SAT = 1 + 2e-6


@pytest.fixture(autouse=True)
def no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would help an infeasible problem is not asked here."""
    monkeypatch.setattr(driver, "smallest_relaxation", lambda *_: None)


def solved(problem: Problem, constraints: Constraints, engine: Engine = "auto") -> SearchResult:
    return driver.search(problem, "throughput", constraints, SearchOptions(time_limit_s=120.0, engine=engine))


def best_even(problem: Problem) -> float:
    """The least step time of all layouts with equal stages, one by one."""
    found = [estimate(problem, s) for s in uniform_strategies(problem, Constraints()) if len(set(s.layers_per_stage or (1,))) == 1]
    return min((e.step_time_s for e in found if e.feasible and e.step_time_s is not None), default=float("inf"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("engine", ["auto", "cp_sat"])
def test_no_even_layout_is_better_than_the_best_even_plan(seed: int, engine: Engine) -> None:
    problem = small_problem(seed, 4)
    result, least = solved(problem, Constraints(tier="even"), engine), best_even(problem)
    if result.outcome == "infeasible":
        assert least == float("inf")
        return
    assert result.outcome == "optimal" and result.plan is not None and result.predicted is not None
    assert (result.predicted.step_time_s or 0.0) <= least * CP_SAT
    assert judge(problem, result.plan, result.predicted, Constraints(tier="even")) == ()
    assert len({sum(b - a + 1 for a, b in s.layers) for s in result.plan.pipelines[0].stages}) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_wider_tier_is_never_slower_and_its_gain_is_said(seed: int) -> None:
    problem, before = small_problem(seed, 4), float("inf")
    for tier in TIERS:
        result = solved(problem, Constraints(tier=tier))
        if result.predicted is None or result.predicted.step_time_s is None:
            assert before == float("inf")
            continue
        assert result.predicted.step_time_s <= before * (1 + 1e-9)
        own = next(t for t in result.tiers if t.tier == tier)
        assert own.step_time_s == result.predicted.step_time_s and own.baseline is None
        assert own.gain is None if before == float("inf") else own.gain == pytest.approx(1 - own.step_time_s / before, abs=1e-9)
        above = next_tier(tier)
        if above is not None:
            wider = solved(problem, Constraints(tier=above)).predicted
            step = next(t for t in result.tiers if t.tier == above)
            assert wider is not None and step.step_time_s == pytest.approx(wider.step_time_s, rel=1e-9)
            assert step.gain is not None and step.gain >= -1e-9
        before = result.predicted.step_time_s


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tier_changes_no_price(seed: int) -> None:
    """Every baseline priced again is what it says, and none beats the answer: all stand under the same prices."""
    problem = small_problem(seed, 4)
    result = solved(problem, Constraints())
    for b in result.baselines:
        if b.plan is not None:
            again = estimate(problem, b.plan)
            assert again.feasible and again.step_time_s == b.step_time_s
            assert result.predicted is not None and b.step_time_s >= (result.predicted.step_time_s or 0.0) * (1 - 1e-9)
            assert result.plan is not None and b.plan.framework == result.plan.framework


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_launcher_gets_only_what_its_row_allows(launcher: Launcher, seed: int) -> None:
    problem, constraints = small_problem(seed, 4), Constraints(launcher=launcher)
    result = solved(problem, constraints)
    assert result.outcome in ("optimal", "infeasible")
    if result.plan is None or result.predicted is None:
        return
    assert judge(problem, result.plan, result.predicted, constraints) == ()
    rules = LAUNCHERS[launcher]
    stages = [s for p in result.plan.pipelines for s in p.stages]
    assert result.plan.framework == rules.framework
    assert all(s.zero_stage in rules.zero_stages for s in stages)
    assert rules.pipelines or len(result.plan.pipelines[0].stages) == 1
    assert rules.virtual_stages or result.plan.virtual_stages == 1
    assert estimate(problem, result.plan).step_time_s == result.predicted.step_time_s


def test_rows_forbid_what_another_launcher_may() -> None:
    tight = replace(small_problem(0, 4), workload=replace(small_problem(0, 4).workload, global_batch_size=4))
    asked: tuple[tuple[Launcher, Constraints], ...] = (
        ("megatron", Constraints(zero_stage=(3,))), ("torchtitan", Constraints(zero_stage=(1,))), ("flagscale", Constraints(cp=(2,))),
        ("fsdp", Constraints(zero_stage=(0,))))
    for launcher, constraints in asked:
        result = solved(tight, replace(constraints, launcher=launcher))
        assert result.outcome == "infeasible" and result.reasons


def test_tiers_are_nested() -> None:
    below: dict[Tier, Tier | None] = {tier: next_tier(tier) for tier in TIERS}
    assert below == {"even": "uneven_layers", "uneven_layers": "uneven_degrees", "uneven_degrees": None}
