"""Peers to stages in CP-SAT: the slowest pool as fast as can be, and among such assignments the fastest pool no faster than it must be."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

SCALE = 10**7                                              # units of the largest possible rate: what rates are rounded down to


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """`counts` [stage][class] peers. `proved`: no assignment has a slowest pool faster than `bound`, up to rounding."""

    counts: tuple[tuple[int, ...], ...]
    bound: float
    proved: bool


def assign(rates: Sequence[Sequence[float]], peers: Sequence[int], work_limit: float) -> Pooled | None:
    """`rates` [stage][class]: micro-batches per second of one peer of a class in a stage; all peers are used, every stage has one at least.

    None where there are fewer peers than stages. Equal peers are counted, never told apart.
    """
    if sum(peers) < len(rates):
        return None
    unit = max(sum(rate * n for rate, n in zip(row, peers, strict=True)) for row in rates) / SCALE
    model = cp_model.CpModel()
    n = [[model.new_int_var(0, most, f"n_{j}_{c}") for c, most in enumerate(peers)] for j in range(len(rates))]
    for c, most in enumerate(peers):
        model.add(sum(row[c] for row in n) == most)
    sums = []
    for row, of in zip(n, rates, strict=True):
        model.add(sum(row) >= 1)
        sums.append(sum(int(rate / unit) * v for rate, v in zip(of, row, strict=True)))
    least, most_of_all = model.new_int_var(0, SCALE, "least"), model.new_int_var(0, SCALE, "most")
    for total in sums:
        model.add(least <= total)
        model.add(most_of_all >= total)
    model.maximize(least)
    first = _solved(model, work_limit)
    if first is None:
        return None
    solver, proved = first
    rounding = sum(peers)                                  # a unit for each rate rounded down
    bound, held = (solver.best_objective_bound + rounding) * unit, int(solver.value(least)) - rounding
    counts = _counts(solver, n)
    model.add(least >= held)
    model.minimize(most_of_all)
    second = _solved(model, work_limit)
    if second is not None:
        counts = _counts(second[0], n)
    return Pooled(counts=counts, bound=bound, proved=proved)


def _solved(model: cp_model.CpModel, work_limit: float) -> tuple[cp_model.CpSolver, bool] | None:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1                      # one worker and a limit in work: the same answer every time
    solver.parameters.max_deterministic_time = work_limit
    status = solver.solve(model)
    return (solver, status == cp_model.OPTIMAL) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None


def _counts(solver: cp_model.CpSolver, n: list[list[Any]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(solver.value(v)) for v in row) for row in n)
