"""What the user would have without this search: the best plan of each simpler family, shown beside the answer."""
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import replace

from solver.domain.options import Constraints, Launcher, SearchOptions
from solver.domain.problem import Problem
from solver.search.explore import REPORT_EVERY_S, Exploration, Watch, explore, table_factory
from solver.search.incumbent import Priced
from solver.search.result import Baseline
from solver.search.solve import Limits
from solver.search.tables import TableFactory

SHARE = 0.5                                                # of the time limit, at most, goes to each simpler family
LAUNCHERS: tuple[Launcher, ...] = ("megatron",)


def families(problem: Problem, constraints: Constraints) -> list[tuple[str, Constraints]]:
    """Families that do not depend on each other: each node group alone, and what each launcher runs."""
    groups = [g.name for g in problem.cluster.node_groups if constraints.node_groups is None or g.name in constraints.node_groups]
    alone = [(f"only:{name}", replace(constraints, node_groups=(name,))) for name in groups] if len(groups) > 1 else []
    launchers = [(f"launcher:{name}", replace(constraints, launcher=name)) for name in LAUNCHERS] if constraints.launcher is None else []
    return alone + launchers


def uniform(problem: Problem, constraints: Constraints, options: SearchOptions, factory: TableFactory, limits: Limits,
            watch: Watch) -> tuple[list[Baseline], list[Priced]]:
    """The best uniform plan over all node groups: a baseline, and the first plan to beat."""
    if constraints.uniform or constraints.launcher is not None:
        return [], []
    watch.phase = "baselines"
    explored = explore(problem, replace(constraints, uniform=True), options, factory, limits, watch, [], share=SHARE)
    watch.tell(explored.frontier, explored.solver, f"uniform: {explored.best.step_s:.3f} s" if explored.best else "uniform: no plan", force=True)
    return [baseline("uniform", explored, watch)], [explored.best] if explored.best is not None else []


class Others:
    """The other families: solved apart, one after the other, where there is an executor; what has not been begun when they are asked for, here."""

    def __init__(self, problem: Problem, constraints: Constraints, options: SearchOptions, limits: Limits, executor: Executor | None) -> None:
        self.problem, self.options, self.limits, self.executor = problem, options, limits, executor
        self.names = [name for name, _ in families(problem, constraints)]
        self._waiting = deque(families(problem, constraints))
        self._apart: dict[str, Future[Baseline]] = {}
        self._begin_next()

    def _begin_next(self) -> None:
        if self.executor is None:
            return
        try:
            name, family = self._waiting.popleft()         # a deque's ends are safe to take from in two threads
        except IndexError:
            return
        self._apart[name] = self.executor.submit(alone, self.problem, name, family, self.options, self.limits)
        self._apart[name].add_done_callback(lambda done: self._begin_next())

    def collect(self, factory: TableFactory, watch: Watch, tell: Callable[[str], None]) -> list[Baseline]:
        """All of them, in the time that is left."""
        watch.phase, found = "baselines", dict[str, Baseline]()
        while self._waiting:
            try:
                name, family = self._waiting.pop()
            except IndexError:
                break
            found[name] = _unsearched(name) if watch.stop() else self._here(name, family, factory, watch)
        for name, future in list(self._apart.items()):
            while not future.done() and not watch.stop():
                wait([future], timeout=REPORT_EVERY_S)
                tell(f"waiting for {name}")
            found[name] = future.result() if future.done() else _unsearched(name)
        return [found[name] for name in self.names]

    def _here(self, name: str, family: Constraints, factory: TableFactory, watch: Watch) -> Baseline:
        quiet = replace(watch, report=lambda progress: None)   # the best plan so far is not this family's
        return baseline(name, explore(self.problem, family, self.options, factory, self.limits, quiet, []), quiet)


def _unsearched(name: str) -> Baseline:
    return Baseline(name=name, step_time_s=None, reason="not searched to an end in time")


def from_known(found: list[Baseline], known: list[Priced]) -> list[Baseline]:
    """Baselines with what the whole search met on its way: a plan that belongs to a simpler family counts for it."""
    improved = []
    for b in found:
        better = min((p for p in known if belongs(p, b.name)), key=lambda p: p.step_s, default=None)
        if better is not None and (b.step_time_s is None or better.step_s < b.step_time_s):
            improved.append(Baseline(name=b.name, step_time_s=better.step_s, plan=better.plan, reason="best found in the time given"))
        else:
            improved.append(b)
    return improved


def belongs(p: Priced, name: str) -> bool:
    """Whether a plan is one of a family, by its name."""
    stages = p.layout.stages
    alike = len({(s.tp, s.dp, s.recompute) for s in stages}) == 1
    if name.startswith("only:"):
        return all(s.groups == (name.removeprefix("only:"),) for s in stages)
    return alike and (name == "uniform" or max(s.zero_stage for s in stages) <= 1)


def alone(problem: Problem, name: str, family: Constraints, options: SearchOptions, limits: Limits) -> Baseline:
    """The best plan of one family, in a process of its own."""
    watch = Watch(options=options, report=lambda progress: None, cancelled=lambda: False, clock=time.monotonic, started=time.monotonic())
    return baseline(name, explore(problem, family, options, table_factory(problem, family), limits, watch, [], share=SHARE), watch)


def baseline(name: str, explored: Exploration, watch: Watch) -> Baseline:
    if explored.best is not None:
        bound = f"; none of this family is faster than {explored.bound_s:.4g} s" if explored.bound_s > 0 else ""
        note = None if explored.proved else f"best found in the time given{bound}"
        return Baseline(name=name, step_time_s=explored.best.step_s, plan=explored.best.plan, reason=note)
    return Baseline(name=name, step_time_s=None,
                    reason="no plan of this family fits" if explored.proved or not watch.stop() else "none found in time")
