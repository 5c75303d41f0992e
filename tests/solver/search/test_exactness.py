"""Bounds never above, engines always at, the optimum that plain enumeration finds over small random tables."""
from functools import cache

import numpy as np
import pytest

from solver.search.bounds import flat_bound, quick_bound, sync_floor
from solver.search.labels import LabelRun, run
from solver.search.prices import cost_to_go
from solver.search.rounds import round_bounds, run_rounds
from solver.search.tables import Tables
from tests.solver.search.random_tables import brute_force, drawn, drawn_rounds, drawn_siblings, judge

QUICK, MANY = range(250), range(1_000, 6_000)
QUICK_ROUNDS, MANY_ROUNDS = range(80), range(1_000, 3_000)
FAR = 1e6                                                  # seconds: no plan is slower
CLOSE = 1e-9


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


@pytest.mark.parametrize("seed", QUICK)
def test_bounds_are_never_above_the_optimum(seed: int) -> None:
    check_bounds(seed)


@pytest.mark.parametrize("seed", QUICK)
def test_labels_bound_the_optimum_and_list_it(seed: int) -> None:
    check_labels(seed)


@pytest.mark.parametrize("seed", QUICK_ROUNDS)
def test_rounds_bound_the_optimum_and_list_it(seed: int) -> None:
    check_rounds(seed)


@pytest.mark.long
def test_many_random_tables() -> None:
    for seed in MANY:
        check_bounds(seed)
        check_labels(seed)
    for seed in MANY_ROUNDS:
        check_rounds(seed)
