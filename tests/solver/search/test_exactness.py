"""Bounds never above, engines always at, the optimum that plain enumeration finds over small random tables."""
from functools import cache

import numpy as np
import pytest

from solver.search import dominated
from solver.search.bounds import flat_bound, quick_bound, sync_floor
from solver.search.capacity import capacity_bound, kinds_within
from solver.search.exact import Picks, exact_times
from solver.search.formulation import stages as formulation
from solver.search.labels import LabelRun, run
from solver.search.prices import cost_to_go
from solver.search.rounds import round_bounds, run_rounds
from solver.search.tables import Tables, only
from tests.solver.search.random_tables import brute_force, drawn, drawn_rounds, drawn_siblings, judge

QUICK, MANY = range(250), range(1_000, 6_000)
QUICK_ROUNDS, MANY_ROUNDS = range(80), range(1_000, 3_000)
FAR = 1e6                                                  # seconds: no plan is slower
CLOSE = 1e-9
CP_SAT = 2e-6                                              # integers lose so much


@cache
def solved(seed: int) -> tuple[Tables, float]:
    t = drawn(seed) if seed % 3 else drawn_siblings(seed)
    return t, brute_force(t)[0]


@cache
def solved_rounds(seed: int) -> tuple[Tables, int, float]:
    t, stages = drawn_rounds(seed)
    return t, stages, brute_force(t, stages=stages)[0]


def best_of(t: Tables, found: LabelRun) -> float:
    """Exact step time of the best plan listed, by the judge."""
    values = [judge(t, p.stages) for p in found.plans]
    assert None not in values
    return min((v for v in values if v is not None), default=np.inf)


def above(bound: float, best: float) -> bool:
    return bound > best * (1 + CLOSE)


def check_bounds(seed: int) -> None:
    t, best = solved(seed)
    assert np.isinf(best) or sync_floor(t) <= best
    assert not above(quick_bound(t), best), f"quick_bound, seed {seed}"
    for cutoff in (FAR, best * 1.1, best * 1.0001):
        if np.isfinite(cutoff):
            assert not above(cost_to_go(t, cutoff).root(t), best), f"cost_to_go, seed {seed}"
            assert not above(flat_bound(t, cutoff), best), f"flat_bound, seed {seed}"
            assert not above(capacity_bound(t, quick_bound(t), cutoff), best), f"capacity_bound, seed {seed}"


def check_kinds_within(seed: int) -> None:
    """A best plan is made of kinds that are said to be worth having within any longer time."""
    t, best = solved(seed)
    if np.isinf(best):
        return
    longer = (1 + 1e-6, 1.02, 1.3)[seed // 3 % 3]
    kept = only(t, kinds_within(t, best * longer))
    assert kept.num_kinds, f"seed {seed}, {longer}"
    assert brute_force(kept)[0] == pytest.approx(best, rel=CLOSE), f"seed {seed}, {longer}"


def check_labels(seed: int) -> None:
    t, best = solved(seed)
    bounded = run(t, FAR, dominance=True, max_labels=10**6, keep=10**6)
    assert bounded.complete
    assert not above(bounded.bound, best), f"label bound, seed {seed}"
    for cutoff in (FAR, best * 1.000001):
        if np.isfinite(cutoff):
            listed = run(t, cutoff, dominance=False, max_labels=10**6, keep=10**6)
            assert listed.complete
            assert best_of(t, listed) == pytest.approx(best, rel=CLOSE), f"listing, seed {seed}"
            assert not above(run(t, cutoff, dominance=True, max_labels=10**6, keep=10).bound, best)


def check_rounds(seed: int) -> None:
    t, stages, best = solved_rounds(seed)
    for cutoff in (FAR, best * 1.000001):
        if np.isfinite(cutoff):
            bound = round_bounds(t, [(stages, t.virtual_stages)], cutoff)[0]
            assert not above(bound, best), f"round_bounds, seed {seed}"
            listed = run_rounds(t, stages, cutoff, max_labels=10**6)
            assert listed.complete and not above(listed.bound, best)
            assert best_of(t, listed) == pytest.approx(best, rel=CLOSE), f"run_rounds, seed {seed}"


def check_formulation(seed: int) -> None:
    """CP-SAT's least bound is that of the labels; plans taken in turn end with the optimum."""
    t, best = solved(seed)
    cutoff = best * 1.3 if np.isfinite(best) else 50.0
    labels_bound = run(t, cutoff, dominance=True, max_labels=10**6, keep=10).bound
    answer = formulation.solve(t, cutoff)
    assert answer.proved and answer.bound == pytest.approx(labels_bound, rel=CP_SAT), f"seed {seed}"
    found, excluded, limit = np.inf, [], cutoff
    while answer.picks is not None and answer.bound < min(limit, found) * (1 - CP_SAT):
        value = judge(t, answer.picks)
        found = min(found, value if value is not None else np.inf)
        excluded.append(answer.picks)
        answer = formulation.solve(t, min(limit, found), excluded=excluded)
    if np.isfinite(best):
        assert found == pytest.approx(best, rel=CP_SAT), f"seed {seed}"
    else:
        assert np.isinf(found)


def check_undominated(seed: int) -> None:
    """Without the dominated kinds of every position the best plan is as fast."""
    t, best = drawn_siblings(seed), brute_force(drawn_siblings(seed))[0]
    limits = np.full(t.num_kinds, t.layers)
    kept = [set(dominated.undominated(t, k, limits, exact=True).tolist()) for k in range(1, t.layers + 1)]
    assert brute_force(t, allowed=kept)[0] == pytest.approx(best, rel=CLOSE), f"seed {seed}"


@pytest.mark.parametrize("seed", QUICK)
def test_bounds_are_never_above_the_optimum(seed: int) -> None:
    check_bounds(seed)
    if seed % 3 == 0:
        check_kinds_within(seed)


@pytest.mark.parametrize("seed", QUICK)
def test_labels_bound_the_optimum_and_list_it(seed: int) -> None:
    check_labels(seed)


@pytest.mark.parametrize("seed", QUICK_ROUNDS)
def test_rounds_bound_the_optimum_and_list_it(seed: int) -> None:
    check_rounds(seed)


@pytest.mark.parametrize("seed", range(0, 120, 3))
def test_formulation_agrees_with_labels(seed: int) -> None:
    check_formulation(seed)


@pytest.mark.parametrize("seed", range(5_000, 5_060))
def test_dominated_kinds_are_not_missed(seed: int) -> None:
    check_undominated(seed)


@pytest.mark.parametrize("seed", range(60))
def test_exact_times_are_those_of_the_judge(seed: int) -> None:
    """Every plan of a listing, priced many at once."""
    t, _ = solved(seed)
    plans: list[Picks] = [p.stages for p in run(t, FAR, dominance=False, max_labels=10**6, keep=10**6).plans]
    if plans:
        assert exact_times(t, plans).tolist() == pytest.approx([judge(t, p) for p in plans], rel=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_a_list_that_is_cut_short_is_not_complete(seed: int) -> None:
    t, best = solved(seed)
    everything = run(t, FAR, dominance=False, max_labels=10**6, keep=10**6)
    for limits in ((1, 10**6), (10**6, 1)):
        some = run(t, FAR, dominance=False, max_labels=limits[0], keep=limits[1])
        assert not some.complete or len(some.plans) == len(everything.plans)
        assert not above(some.bound, best)
        assert not above(some.bound_beyond, best) or len(some.plans) == len(everything.plans)


@pytest.mark.long
def test_many_random_tables() -> None:
    for seed in MANY:
        check_bounds(seed)
        check_kinds_within(seed)
        check_labels(seed)
    for seed in range(10_000, 10_400):
        check_formulation(seed)
    for seed in range(20_000, 21_000):
        check_undominated(seed)
    for seed in MANY_ROUNDS:
        check_rounds(seed)
