"""Limits on what the GPUs of a plan take together: money per hour, watts, or simply their number.

A limit is linear in the GPUs in use. A stage over several node groups counts evenly on them, as its price and power do (`cost.flops.gpus_by_group`).
"""
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.cost.flops import gpus_by_group
from solver.domain.layout import Layout
from solver.domain.options import Constraints
from solver.domain.problem import Problem

TOLERANCE = 1e-9                                           # relative, of a limit
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Σ rate x GPUs in use <= limit. A node group without a rate may not be used: nobody knows what it takes."""

    rates: Mapping[str, float]
    limit: float

    def used(self, layout: Layout) -> float:
        """What a layout takes; infinite where a rate is missing."""
        return sum(n * self.rates.get(name, float("inf")) for name, n in gpus_by_group(layout).items())

    def keeps(self, layout: Layout) -> bool:
        return self.used(layout) <= self.limit * (1 + TOLERANCE)

    def most(self, name: str, gpus: int) -> int:
        """GPUs of one node group, of `gpus` that it has, that a plan may use at most."""
        if name not in self.rates:
            return 0
        rate = self.rates[name]
        return gpus if rate * gpus <= self.limit else int(self.limit * (1 + TOLERANCE) / rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Plans whose step time x what they take by `rates` reaches `limit` do not count."""

    rates: Mapping[str, float]
    limit: float

    def of_groups(self, names: Sequence[str]) -> Floats:
        """[G] rates of node groups."""
        return np.array([self.rates[name] for name in names])


def price_budget(problem: Problem, constraints: Constraints) -> tuple[Budget, ...]:
    """The price limit of a request as a budget, if it has one."""
    if constraints.max_price_per_hour is None:
        return ()
    prices = {g.name: g.price_per_gpu_hour for g in problem.cluster.node_groups if g.price_per_gpu_hour is not None}
    return (Budget(rates=prices, limit=constraints.max_price_per_hour),)


def usable(problem: Problem, budgets: Iterable[Budget]) -> dict[str, int]:
    """GPUs of each node group that some plan within the budgets may use."""
    found = {g.name: g.gpus for g in problem.cluster.node_groups}
    for budget in budgets:
        found = {name: budget.most(name, gpus) for name, gpus in found.items()}
    return found


def rates_by_group(budgets: Sequence[Budget], names: Sequence[str]) -> tuple[Floats, Floats]:
    """(rates [budgets, groups], limits [budgets]); a group without a rate is never used, so any number serves."""
    rates = np.array([[b.rates.get(name, 0.0) for name in names] for b in budgets]).reshape(len(budgets), len(names))
    return rates, np.array([b.limit for b in budgets])


def most_value(values: Floats, gpus: Floats, rates: Floats, limits: Floats) -> float:
    """Upper bound on Σ values x GPUs over GPU counts up to `gpus` within the budgets: the best fractional choice under each budget alone.

    values, gpus [G] >= 0; rates [B, G]; limits [B]. Under one budget GPUs are taken in order of value for what they take.
    """
    best = float(values @ gpus)
    for rate, limit in zip(rates, limits, strict=True):
        free, total, left = rate <= 0.0, 0.0, limit * (1 + TOLERANCE)
        total = float(values[free] @ gpus[free])
        for g in np.argsort(-values / np.where(free, np.inf, rate), kind="stable"):
            if not free[g]:
                taken = min(float(gpus[g]), left / float(rate[g]))
                total, left = total + taken * float(values[g]), left - taken * float(rate[g])
        best = min(best, total)
    return best
