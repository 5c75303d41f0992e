"""What the user would have without this search: the best plan of each simpler family, shown beside the answer."""
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import replace

from solver.domain.launchers import Launcher
from solver.domain.options import Constraints, SearchOptions
from solver.domain.problem import Problem
from solver.search.explore import REPORT_EVERY_S, Exploration, Watch, explore, table_factory
from solver.search.incumbent import Priced
from solver.search.result import Baseline
from solver.search.solve import Limits
from solver.search.tables import TableFactory
from solver.search.tiers import baseline_of, family_above, launcher_family

SHARE = 0.5                                                # of the time limit, at most, goes to each simpler family
WRITTEN: tuple[Launcher, ...] = ("megatron",)             # launchers whose files are written: the best plan of each is shown and can be exported


def families(problem: Problem, constraints: Constraints) -> list[tuple[str, Constraints]]:
    """Families that do not depend on each other: each node group alone."""
    groups = [g.name for g in problem.cluster.node_groups if constraints.node_groups is None or g.name in constraints.node_groups]
    return [(f"only:{name}", replace(constraints, node_groups=(name,))) for name in groups] if len(groups) > 1 else []


def simpler_families(constraints: Constraints) -> list[tuple[str, Constraints]]:
    """Families that a plan found elsewhere may belong to, and then need no search: even stages, and what each launcher runs."""
    even = [(baseline_of("even"), replace(constraints, tier="even"))] if constraints.allowed_tier != "even" else []
    found = [(f"launcher:{name}", launcher_family(constraints, name)) for name in WRITTEN] if constraints.launcher is None else []
    return even + [(name, family) for name, family in found if family is not None]


def uniform(problem: Problem, constraints: Constraints, options: SearchOptions, factory: TableFactory, limits: Limits,
            watch: Watch) -> tuple[list[Baseline], Exploration | None]:
    """The best uniform plan over all node groups: a baseline, and the first plan to beat. None where stages may not differ anyway."""
    if constraints.allowed_tier != "uneven_degrees":
        return [], None
    watch.phase = "baselines"
    explored = explore(problem, replace(constraints, uniform=True), options, factory, limits, watch, [], share=SHARE)
    watch.tell(explored.frontier, explored.solver, f"uniform: {explored.best.step_s:.3f} s" if explored.best else "uniform: no plan", force=True)
    return [baseline("uniform", explored, watch)], explored


class Others:
    """The other families: solved apart, one after the other, where there is an executor; what has not been begun when they are asked for, here."""

    def __init__(self, problem: Problem, constraints: Constraints, options: SearchOptions, limits: Limits, executor: Executor | None) -> None:
        self.problem, self.constraints, self.options, self.limits, self.executor = problem, constraints, options, limits, executor
        self.names = [name for name, _ in families(problem, constraints)]
        self._waiting = deque(families(problem, constraints))
        self._apart: dict[str, Future[Baseline]] = {}
        self._settled: dict[str, Baseline] = {}
        self._if_known: list[str] = []
        self._begin_next()

    def add(self, families: list[tuple[str, Constraints]], known: Exploration | None) -> None:
        """More families. Those that the best plan of a wider family, proved, belongs to are settled by it at once."""
        for name, family in families:
            if self._settle(name, known):
                continue
            if name == baseline_of("even") and self.constraints.tier is None:
                self._if_known.append(name)                # shown where the answer tells; searched for those who ask about tiers
            else:
                self.names.append(name)
                self._waiting.append((name, family))
        if all(future.done() for future in list(self._apart.values())):
            self._begin_next()

    def _settle(self, name: str, known: Exploration | None) -> bool:
        if known is None or not known.proved:
            return False
        if known.best is None:
            self._settled[name] = Baseline(name=name, step_time_s=None, reason="no plan of this family fits")
            return True
        if not belongs(known.best, name):
            return False
        self._settled[name] = Baseline(name=name, step_time_s=known.best.step_s, plan=known.best.plan)
        return True

    def _ordered(self, found: dict[str, Baseline]) -> list[Baseline]:
        return [found[name] for name in (*self.names, *(n for n in self._settled if n not in self.names))]

    def _begin_next(self) -> None:
        if self.executor is None:
            return
        try:
            name, family = self._waiting.popleft()         # a deque's ends are safe to take from in two threads
        except IndexError:
            return
        self._apart[name] = self.executor.submit(alone, self.problem, name, family, self.options, self.limits)
        self._apart[name].add_done_callback(lambda done: self._begin_next())

    def collect(self, factory: TableFactory, watch: Watch, tell: Callable[[str], None], whole: Exploration) -> list[Baseline]:
        """All of them, in the time that is left; what the answer itself belongs to is not searched."""
        watch.phase, found = "baselines", dict[str, Baseline]()
        while self._waiting:
            try:
                name, family = self._waiting.pop()
            except IndexError:
                break
            if self._settle(name, whole):
                continue
            found[name] = _unsearched(name) if watch.stop() else self._here(name, family, factory, watch)
        for name, future in list(self._apart.items()):
            while not future.done() and not watch.stop():
                wait([future], timeout=REPORT_EVERY_S)
                tell(f"waiting for {name}")
            found[name] = future.result() if future.done() else _unsearched(name)
        for name in self._if_known:
            self._settle(name, whole)
        return self._ordered(found | self._settled)

    def _here(self, name: str, family: Constraints, factory: TableFactory, watch: Watch) -> Baseline:
        quiet = replace(watch, report=lambda progress: None)   # the best plan so far is not this family's
        return baseline(name, explore(self.problem, family, self.options, factory, self.limits, quiet, []), quiet)


def above(problem: Problem, constraints: Constraints, options: SearchOptions, limits: Limits, whole: Exploration, watch: Watch) -> list[Baseline]:
    """The best of the tier above the one asked for, under the same prices: what a launcher of that tier would gain. Empty at the highest tier."""
    found = family_above(constraints, whole.best) if whole.best is not None else None
    if found is None or whole.best is None:
        return []
    name, family = found
    if watch.stop(SHARE):
        return [_unsearched(name)]
    quiet, factory = replace(watch, report=lambda progress: None), table_factory(problem, family)
    explored = explore(problem, family, options, factory, limits, quiet, [whole.best], share=SHARE, framework=constraints.rules.framework)
    return [baseline(name, explored, quiet)]


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
    if name == baseline_of("even"):
        return alike and len({sum(last - first + 1 for first, last in s.layers) for s in stages}) == 1
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
