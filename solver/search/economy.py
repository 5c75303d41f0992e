"""Objectives other than time: the least energy or money of a step, or the fewest GPUs. How many GPUs to use is part of the answer.

A plan of step time T whose GPUs take W together (watts, or money per second) is worth T x W. With B(w) the least step time of plans that take at most
w, every plan with V / B(w) < W <= w is worth more than V. So the search walks down in w: the throughput search within the budget w gives B(w) or a
bound below it, everything above V / B(w) is excluded, V the worth of the best plan so far, and that is the next budget. To exclude all of [a, w] at
once, only plans faster than V / a are looked for. The walk ends below what any plan takes. See docs/search.md.
"""
import math
from dataclasses import replace

import numpy as np

from solver.domain.options import Constraints, SearchOptions
from solver.domain.problem import Problem
from solver.search.budget import Worth
from solver.search.explore import Exploration, Watch, explore, table_factory
from solver.search.floor import memory_floor
from solver.search.incumbent import Incumbents
from solver.search.meter import Meter
from solver.search.probes import least_work, probe_of
from solver.search.result import Baseline
from solver.search.seeds import sow
from solver.search.solve import Limits
from solver.search.space import Space

SPAN = 0.8                                                 # a stretch of budgets excluded at once ends at this share of its begin
BELOW = 1 - 4e-9                                           # strictly less, beyond the tolerance of a budget
SOW_SHARE = 0.25                                           # of the time limit, at most, for first plans
WORK_SHARE = 0.5                                           # of the time limit, at most, to bound what busy GPUs take
FASTEST_SHARE = 0.6                                        # of the time limit, at most, to find the fastest plan
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)                   # of all GPUs, on which first plans are sought


class Walk:
    """One search down in what plans take. Everything that takes more than `top` is excluded: it is worth no less than the best plan."""

    def __init__(self, problem: Problem, constraints: Constraints, options: SearchOptions, limits: Limits, watch: Watch, meter: Meter) -> None:
        self.problem, self.constraints, self.options, self.limits, self.meter = problem, constraints, options, limits, meter
        self.watch = replace(watch, report=lambda p: watch.report(replace(p, bound_s=None, gap=None)))      # bounds of parts bound no answer
        self.factory = table_factory(problem, constraints)
        self.space = Space(problem, constraints, (meter.budget(float("inf")),))
        self.pool = Incumbents(problem, constraints, rank=meter.rank)
        self.top = self.space.most_value(np.array([meter.rates[name] for name in self.space.gpus]))
        self.least = self._least()
        self.fastest_s = 0.0                               # no plan within `top` takes less time
        self.busy = 0.0                                    # no plan is worth less
        self.done: list[Exploration] = []

    def _least(self) -> float:
        """No plan takes less: one GPU, and GPUs enough to hold every state once."""
        floor = memory_floor(self.space, self.factory)
        rates = [self.meter.rates[name] for name in self.space.gpus]
        dense = max((room / rate if rate else float("inf") for room, rate in zip(floor.room_bytes.values(), rates, strict=True)), default=0.0)
        return max(min(rates, default=0.0), floor.need_bytes / dense if dense else 0.0) * BELOW

    def sow(self) -> None:
        """First plans on shares of the GPUs."""
        for share in SHARES:
            budgets = (self.meter.budget(self.top * share),)
            found = Incumbents(self.problem, self.constraints, budgets)
            sow(Space(self.problem, self.constraints, budgets), self.factory.within(budgets), found, lambda: self.watch.stop(SOW_SHARE))
            self._keep(found)

    def work(self) -> float:
        """No plan is worth less than what GPUs take while they are busy; 0 where time does not suffice to tell.

        Larger micro-batches are no less efficient, so those that divide no other stand for all.
        """
        space, rates, least = self.space, np.array([self.meter.rates[name] for name in self.space.gpus]), float("inf")
        batch, modes = space.workload.global_batch_size, space.recompute_modes()[:1]
        sizes = space.micro_batch_sizes()
        for context in space.contexts():
            for b in (b for i, b in enumerate(sizes) if all(c % b for c in sizes[i + 1:])):
                if self.watch.stop(WORK_SHARE):
                    return 0.0
                if space.degrees(context):
                    least = min(least, least_work(probe_of(space, self.factory, context, b, fastest=True), rates, context.cp, batch // b))
        return least if np.isfinite(least) and modes[0] == "none" else 0.0

    def explore(self, limit: float, ceiling_s: float = float("inf"), *, share: float = 1.0, worth: float | None = None,
                any_plan: bool = False) -> Exploration:
        """The throughput search among the plans that take at most `limit`, are faster than `ceiling_s` and worth less than `worth`."""
        budgets = (self.meter.budget(limit),)
        known = [p for p in self.pool.others.values() if budgets[0].keeps(p.layout)]
        found = explore(self.problem, self.constraints, self.options, self.factory.within(budgets), self.limits, self.watch, known, share=share,
                        budgets=budgets, ceiling_s=ceiling_s, any_plan=any_plan,
                        worth=None if worth is None else Worth(rates=self.meter.rates, limit=worth))
        self._keep(found.incumbents)
        self.done.append(found)
        return found

    def _keep(self, found: Incumbents) -> None:
        for plan in found.others.values():
            self.pool.take(plan)
        self.pool.priced += found.priced
        if self.pool.best is not None:
            self.watch.best_s = self.pool.best.step_s

    def up(self) -> bool:
        """For the number of GPUs: the least on which any plan fits, by halving, then the fastest plan on as many.

        False where time did not suffice.
        """
        self.least = math.ceil(self.least)
        while self.pool.best is not None and self.least < (most := round(self.meter.worth(self.pool.best))):
            middle = (int(self.least) + most) // 2
            found = self.explore(middle, any_plan=True)
            if found.best is None and not found.proved:
                return False
            self.least = self.least if found.best is not None else middle + 1
        return self.explore(self.least).proved

    def down(self) -> bool:
        """Exclude everything that could be worth less than the best plan, from the top; False where time did not suffice."""
        if self.least <= 0.0:                              # some GPUs take nothing
            free = self.explore(0.0)
            if free.best is not None or not free.proved:
                return free.proved
            self.least = min(rate for rate in self.meter.rates.values() if rate > 0.0) * BELOW
        while self.pool.best is not None and self.top >= self.least:
            if self.watch.stop():
                return False
            worth = self.meter.worth(self.pool.best)
            low = max(self.least, self.top * SPAN)
            found = self.explore(self.top, worth / low, worth=worth)
            if not found.proved:
                return False
            self.excluded(found.bound_s)
        return True

    def excluded(self, fastest_s: float) -> None:
        """No plan within `top` takes less than `fastest_s`: those that take more than worth / fastest_s are worth more than the best."""
        assert self.pool.best is not None
        self.fastest_s = max(self.fastest_s, fastest_s)
        if self.fastest_s > 0.0:
            self.top = min(self.top, self.meter.worth(self.pool.best) / self.fastest_s) * BELOW

    def told(self, whole: Exploration) -> Exploration:
        """With the work of all searches counted."""
        for other in self.done:
            if other.frontier is not whole.frontier:
                whole.frontier.candidates += other.frontier.candidates
                whole.frontier.pruned += other.frontier.pruned
                whole.solver.tally.add(other.solver.tally)
        return whole

    @property
    def bound(self) -> float:
        """No plan is worth less: what has not been excluded takes at least `least`, for at least `fastest_s`."""
        best = self.meter.worth(self.pool.best) if self.pool.best is not None else float("inf")
        return best if self.top < self.least else min(best, max(self.busy, self.least * (self.fastest_s if self.meter.timed else 1.0)))


def leanest(problem: Problem, constraints: Constraints, options: SearchOptions, limits: Limits, watch: Watch,
            meter: Meter) -> tuple[Exploration, list[Baseline]]:
    """The plan that is worth least, with a proof or a bound in the unit of its worth; beside it, the fastest plan."""
    walk = Walk(problem, constraints, options, limits, watch, meter)
    walk.sow()
    walk.busy = walk.work() if meter.timed else 0.0
    fastest = walk.explore(walk.top, share=FASTEST_SHARE)
    if fastest.best is None and not fastest.proved:
        fastest = walk.explore(walk.top)
    if fastest.best is None:
        return fastest, []
    if meter.timed:
        walk.excluded(fastest.bound_s)
    proved = walk.down() if meter.timed else walk.up()
    assert walk.pool.best is not None
    bound = meter.worth(walk.pool.best) if proved else walk.bound
    whole = walk.told(replace(fastest, best=walk.pool.best, bound_s=bound, proved=proved, incumbents=walk.pool))
    note = None if fastest.proved else "best found in the time given"
    return whole, [Baseline(name="fastest", step_time_s=fastest.best.step_s, plan=fastest.best.plan, reason=note)]
