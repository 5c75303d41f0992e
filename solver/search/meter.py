"""What an objective other than throughput makes least: by node group, what one GPU in use takes. Idle GPUs and hosts take nothing."""
from collections.abc import Callable
from dataclasses import dataclass

from solver.domain.cluster import NodeGroup
from solver.domain.options import Constraints, Objective
from solver.domain.problem import Problem
from solver.errors import Fault, NotCovered
from solver.search.budget import Budget
from solver.search.incumbent import Priced
from solver.units import hours_from_s


def _power(group: NodeGroup) -> float | None:
    return group.device.power_w


def _price(group: NodeGroup) -> float | None:
    return None if group.price_per_gpu_hour is None else hours_from_s(group.price_per_gpu_hour)


def _one(group: NodeGroup) -> float | None:
    return 1.0


# What one GPU in use takes, and the field that says so: watts, money per second, one.
RATES: dict[str, tuple[Callable[[NodeGroup], float | None], str]] = {
    "energy": (_power, "power_w"), "cost": (_price, "price_per_gpu_hour"), "fewest_gpus": (_one, "number")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """What a plan takes, by node group and GPU in use. Groups without a figure are not used."""

    objective: Objective
    rates: dict[str, float]

    @property
    def timed(self) -> bool:
        """Whether a plan is worth what its GPUs take x its step time. The number of GPUs counts by itself; among equals the fastest wins."""
        return self.objective != "fewest_gpus"

    def taken(self, plan: Priced) -> float:
        return self.budget(0.0).used(plan.layout)

    def worth(self, plan: Priced) -> float:
        """What is to be least, per step: joules, money, or GPUs."""
        return self.taken(plan) * (plan.step_s if self.timed else 1.0)

    def rank(self, plan: Priced) -> tuple[float, ...]:
        return self.worth(plan), plan.step_s

    def budget(self, limit: float) -> Budget:
        return Budget(rates=self.rates, limit=limit)


def meter_of(problem: Problem, objective: Objective, constraints: Constraints) -> Meter | None:
    """The meter of an objective, None for throughput. Refuses objectives that this version does not search, and those of which nothing is known."""
    if objective == "throughput":
        return None
    if objective not in RATES:
        raise NotCovered(Fault(pointer="/objective", message=f"{objective!r} is not searched by this version",
                               legal=", ".join(("throughput", *RATES))))
    rate, field = RATES[objective]
    groups = [g for g in problem.cluster.node_groups if constraints.node_groups is None or g.name in constraints.node_groups]
    rates = {g.name: value for g in groups if (value := rate(g)) is not None}
    if not any(rates.values()):
        raise NotCovered(Fault(pointer="/objective", message=f"{objective!r} needs the {field} of the GPUs", legal="throughput"))
    return Meter(objective=objective, rates=rates)
