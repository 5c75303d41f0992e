"""One family of plans, explored least bound first until the next bound is no better than the best plan; and the watch over time and cancellation."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from solver.domain.degrees import Framework
from solver.domain.options import Constraints, SearchOptions
from solver.domain.problem import Problem
from solver.search.bounds import SLACK
from solver.search.budget import Budget, Worth, price_budget
from solver.search.floor import memory_floor
from solver.search.frontier import Frontier
from solver.search.incumbent import Incumbents, Priced
from solver.search.result import Cancelled, Progress, Report
from solver.search.seeds import sow
from solver.search.solve import Limits, Solver
from solver.search.space import Space
from solver.search.tables import TableFactory

REPORT_EVERY_S = 0.25


@dataclass(slots=True)
class Watch:
    """Time and cancellation: when to stop, and how far the search has come."""

    options: SearchOptions
    report: Report
    cancelled: Cancelled
    clock: Callable[[], float]
    started: float = 0.0
    reported: float = -1.0
    phase: str = "candidates"
    best_s: float | None = None
    bound_s: float | None = None

    def elapsed(self) -> float:
        return self.clock() - self.started

    def stop(self, share: float = 1.0) -> bool:
        return self.elapsed() > self.options.time_limit_s * share or self.cancelled()

    def past(self, until_s: float) -> bool:
        """Whether more than `until_s` seconds have gone by, or the search is cancelled."""
        return self.elapsed() > until_s or self.cancelled()

    def tell(self, frontier: Frontier | None, solver: Solver | None, message: str = "", force: bool = False) -> None:
        """Report at most every REPORT_EVERY_S seconds unless something new must be told."""
        now = self.elapsed()
        if not force and now - self.reported < REPORT_EVERY_S:
            return
        self.reported = now
        gap = max(0.0, 1 - self.bound_s / self.best_s) if self.best_s and self.bound_s is not None else None
        self.report(Progress(phase=self.phase, incumbent_s=self.best_s, bound_s=self.bound_s, gap=gap,
                             candidates=frontier.candidates if frontier else 0, pruned=frontier.pruned if frontier else 0,
                             solved=solver.tally.solved if solver else 0, elapsed_s=now, message=message))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """One family searched: its best plan, a proved bound on all of it, and the work done."""

    best: Priced | None
    bound_s: float
    proved: bool
    frontier: Frontier
    solver: Solver
    incumbents: Incumbents


def table_factory(problem: Problem, constraints: Constraints, budgets: tuple[Budget, ...] = ()) -> TableFactory:
    """Tables with the margin that is asked for (none where the request names none), within its price limit and the budgets."""
    return TableFactory(problem, problem.memory_margin if constraints.memory_margin is not None else 0.0,
                        (*price_budget(problem, constraints), *budgets))


def explore(problem: Problem, constraints: Constraints, options: SearchOptions, factory: TableFactory, limits: Limits, watch: Watch,
            known: Sequence[Priced], share: float = 1.0, budgets: tuple[Budget, ...] = (), ceiling_s: float = float("inf"),
            worth: Worth | None = None, any_plan: bool = False, framework: Framework | None = None) -> Exploration:
    """Least bound first, until the next bound is no better than the best plan; with `any_plan` until there is one.

    Only plans within the budgets and faster than `ceiling_s` count, and only those worth less
    than `worth`. `factory` makes its tables within the same budgets. `framework`: as in `Space`.
    """
    space = Space(problem, constraints, budgets, framework)
    incumbents = Incumbents(problem, constraints, budgets, ceiling_s)
    for priced in known:
        incumbents.take(priced)
    frontier = Frontier(space, factory, lambda: watch.stop(share), worth)
    solver = Solver(space, factory, incumbents, limits, options.engine, lambda: _tick(watch, frontier, solver, incumbents, share))
    if memory_floor(space, factory).excludes_all:
        return Exploration(best=None, bound_s=float("inf"), proved=True, frontier=frontier, solver=solver, incumbents=incumbents)
    if incumbents.limit_s == float("inf"):
        sow(space, factory, incumbents, lambda: watch.stop(share))
    unfinished = float("inf")                              # least bound of choices that were given up: too large to finish
    while not watch.stop(share) and not (any_plan and incumbents.best is not None):
        watch.best_s = incumbents.best.step_s if incumbents.best else watch.best_s
        watch.bound_s = min(frontier.least_bound(), unfinished, incumbents.limit_s) if watch.phase == "search" else None
        step = frontier.advance(incumbents.limit_s * (1 - SLACK))
        if step is False:
            break
        if step is True:
            watch.tell(frontier, solver)
            continue
        bound, choice = step
        before = incumbents.limit_s
        left = solver.solve(choice, bound)
        if left > bound * (1 + SLACK):
            if left < float("inf"):
                frontier.put_back(left, choice)
        else:
            unfinished = min(unfinished, bound)
        if incumbents.limit_s < before:
            watch.best_s = incumbents.limit_s
            watch.tell(frontier, solver, "a better plan", force=watch.phase == "search")
        else:
            watch.tell(frontier, solver)
    bound_s = min(frontier.least_bound(), unfinished, incumbents.limit_s)
    proved = bound_s >= incumbents.limit_s * (1 - 2 * SLACK)
    return Exploration(best=incumbents.best, bound_s=incumbents.limit_s if proved else bound_s, proved=proved, frontier=frontier, solver=solver,
                       incumbents=incumbents)


def _tick(watch: Watch, frontier: Frontier, solver: Solver, incumbents: Incumbents, share: float) -> bool:
    if incumbents.best is not None and watch.phase == "search":
        watch.best_s = incumbents.best.step_s
    watch.tell(frontier, solver)
    return watch.stop(share)
