"""The search, as a recipe: simpler families first (they are baselines and incumbents), then the whole space, least bound first, to a proof."""
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace

from solver.cost.price import price
from solver.domain.estimate import Reason
from solver.domain.options import Constraints, Objective, SearchOptions
from solver.domain.placement import expand
from solver.domain.problem import Problem
from solver.errors import Fault, NotCovered
from solver.search.bounds import SLACK
from solver.search.explain import alternatives, reasons_for_none, smallest_relaxation
from solver.search.frontier import Frontier
from solver.search.incumbent import Incumbents, Priced
from solver.search.result import Baseline, Cancelled, Progress, Report, SearchReport, SearchResult
from solver.search.seeds import sow
from solver.search.solve import Limits, Solver
from solver.search.space import Rejections, Space
from solver.search.tables import TableFactory

REPORT_EVERY_S = 0.25
BASELINE_SHARE = 0.5                                       # of the time limit, at most, goes to each simpler family


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


def search(problem: Problem, objective: Objective, constraints: Constraints, options: SearchOptions, report: Report = lambda progress: None,
           cancelled: Cancelled = lambda: False, *, limits: Limits = Limits(), clock: Callable[[], float] = time.monotonic,
           executor: Executor | None = None) -> SearchResult:
    """The best plan of the space, with a proof or with the bound that could not be closed.

    The space: equal pipelines; per stage its node group, tensor degree, width, recompute and layers; GPipe, 1F1B and interleaved schedules; ZeRO 0-3;
    context parallelism (ring and Ulysses); expert parallelism; any number of GPUs up to all. Without `memory_margin` among the constraints every plan
    that fits counts. `executor` takes solves that do not depend on each other (the best plan of each node group alone); the answer is the same
    without it.
    """
    refuse_uncovered(objective, constraints)
    if constraints.memory_margin is not None:
        problem = replace(problem, memory_margin=constraints.memory_margin)
    watch = Watch(options=options, report=report, cancelled=cancelled, clock=clock, started=clock())
    watch.tell(None, None, "generating candidates", force=True)
    if constraints.candidates is not None:
        return _among_candidates(problem, constraints, options, watch)
    factory = _factory(problem, constraints)
    apart = _start_single_groups(problem, constraints, options, limits, executor)
    uniform, known = _uniform(problem, constraints, options, factory, limits, watch)
    watch.phase = "search"
    whole = _explore(problem, constraints, options, factory, limits, watch, known)
    singles = _single_groups(problem, constraints, options, factory, limits, watch, apart)
    return _answer(problem, constraints, options, whole, singles + uniform, limits, watch)


def refuse_uncovered(objective: Objective, constraints: Constraints) -> None:
    """Objectives and schedules that this version does not search, refused before any work."""
    faults = []
    if objective != "throughput":
        faults.append(Fault(pointer="/objective", message=f"{objective!r} is not searched by this version", legal="throughput"))
    for i, name in enumerate(constraints.schedules or ()):
        if name not in ("gpipe", "1f1b", "interleaved"):
            faults.append(Fault(pointer=f"/constraints/schedules/{i}", message=f"{name!r} is not planned by this version",
                                legal="gpipe, 1f1b, interleaved"))
    if faults:
        raise NotCovered(*faults)


def _factory(problem: Problem, constraints: Constraints) -> TableFactory:
    """Tables with the margin that is asked for: none where the request names none."""
    return TableFactory(problem, problem.memory_margin if constraints.memory_margin is not None else 0.0, constraints.max_price_per_hour)


def _explore(problem: Problem, constraints: Constraints, options: SearchOptions, factory: TableFactory, limits: Limits, watch: Watch,
             known: list[Priced], share: float = 1.0) -> Exploration:
    """Least bound first, until the next bound is no better than the best plan."""
    space = Space(problem, constraints)
    incumbents = Incumbents(problem, safe_only=constraints.memory_margin is not None)
    for priced in known:
        incumbents.take(priced)
    frontier = Frontier(space, factory)
    solver = Solver(space, factory, incumbents, limits, options.engine, lambda: _tick(watch, frontier, solver, incumbents, share))
    if incumbents.best is None:
        sow(space, factory, incumbents)
    unfinished = float("inf")                              # least bound of choices that were given up: too large to finish
    while not watch.stop(share):
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


def _families(problem: Problem, constraints: Constraints) -> list[tuple[str, Constraints]]:
    groups = [g.name for g in problem.cluster.node_groups if constraints.node_groups is None or g.name in constraints.node_groups]
    return [(f"only:{name}", replace(constraints, node_groups=(name,))) for name in groups] if len(groups) > 1 else []


def _start_single_groups(problem: Problem, constraints: Constraints, options: SearchOptions, limits: Limits,
                         executor: Executor | None) -> "list[Future[Baseline]]":
    if executor is None:
        return []
    return [executor.submit(single_group, problem, name, family, options, limits) for name, family in _families(problem, constraints)]


def single_group(problem: Problem, name: str, family: Constraints, options: SearchOptions, limits: Limits) -> Baseline:
    """The best plan of one node group alone, in a process of its own."""
    watch = Watch(options=options, report=lambda progress: None, cancelled=lambda: False, clock=time.monotonic, started=time.monotonic())
    return _family_alone(problem, name, family, options, _factory(problem, family), limits, watch)


def _family_alone(problem: Problem, name: str, family: Constraints, options: SearchOptions, factory: TableFactory, limits: Limits,
                  watch: Watch) -> Baseline:
    return _baseline(name, _explore(problem, family, options, factory, limits, watch, [], share=BASELINE_SHARE), watch)


def _single_groups(problem: Problem, constraints: Constraints, options: SearchOptions, factory: TableFactory, limits: Limits, watch: Watch,
                   apart: "list[Future[Baseline]]") -> list[Baseline]:
    """The best plan on each node group alone: what the user would have without the others.

    Those not solved apart are solved now, in the time that is left.
    """
    watch.phase, found = "baselines", []
    for i, (name, family) in enumerate(_families(problem, constraints)):
        if not apart:
            found.append(_baseline(name, _explore(problem, family, options, factory, limits, watch, []), watch))
            continue
        while not apart[i].done() and not watch.stop():
            wait([apart[i]], timeout=REPORT_EVERY_S)
            watch.tell(None, None, f"waiting for {name}")
        found.append(apart[i].result() if apart[i].done() else Baseline(name=name, step_time_s=None, reason="not searched to an end in time"))
    return found


def _uniform(problem: Problem, constraints: Constraints, options: SearchOptions, factory: TableFactory, limits: Limits,
             watch: Watch) -> tuple[list[Baseline], list[Priced]]:
    """The best uniform plan over all node groups: a baseline, and the first plan to beat."""
    if constraints.uniform or constraints.launcher is not None:
        return [], []
    watch.phase = "baselines"
    explored = _explore(problem, replace(constraints, uniform=True), options, factory, limits, watch, [], share=BASELINE_SHARE)
    watch.tell(explored.frontier, explored.solver, f"uniform: {explored.best.step_s:.3f} s" if explored.best else "uniform: no plan", force=True)
    return [_baseline("uniform", explored, watch)], [explored.best] if explored.best is not None else []


def _baseline(name: str, explored: Exploration, watch: Watch) -> Baseline:
    if explored.best is not None:
        note = None if explored.proved else f"best found; none of this family is faster than {explored.bound_s:.4f} s"
        return Baseline(name=name, step_time_s=explored.best.step_s, plan=explored.best.plan, reason=note)
    return Baseline(name=name, step_time_s=None,
                    reason="no plan of this family fits" if explored.proved or not watch.stop() else "none found in time")


def _answer(problem: Problem, constraints: Constraints, options: SearchOptions, whole: Exploration, baselines: list[Baseline], limits: Limits,
            watch: Watch) -> SearchResult:
    best = whole.best
    watch.phase = "done"
    reasons: tuple[Reason, ...] = ()
    relaxation = None
    if best is None and whole.proved:
        reasons = reasons_for_none(problem, constraints, _factory(problem, constraints))
        relaxation = smallest_relaxation(problem, constraints, lambda p, c: _any_plan(p, c, options, limits, watch))
    watch.best_s, watch.bound_s = (best.step_s if best else None), whole.bound_s if best else None
    watch.tell(whole.frontier, whole.solver, "done", force=True)
    stopped = "proof" if whole.proved else "cancelled" if watch.cancelled() else "time_limit"
    if best is None and not whole.proved:
        reasons = (Reason(code="search.time_limit", message=f"no plan found within {options.time_limit_s:g} s, and none excluded",
                          fix="a larger search.time_limit_s"),)
    tally = whole.solver.tally
    return SearchResult(
        outcome="infeasible" if best is None else "optimal" if whole.proved else "feasible", plan=best.plan if best else None,
        predicted=best.predicted if best else None, bound_s=whole.bound_s if best else None,
        gap=max(0.0, 1 - whole.bound_s / best.step_s) if best else None,
        alternatives=alternatives(whole.incumbents, options.alternatives), rejected=_rejected(whole), baselines=tuple(baselines), reasons=reasons,
        relaxation=relaxation,
        search=SearchReport(engine="+".join(sorted(tally.engines)) or "bounds", candidates=whole.frontier.candidates, pruned=whole.frontier.pruned,
                            solved=tally.solved, solver_calls=tally.solver_calls,
                            wall_s=watch.elapsed(), stopped=stopped))


def _rejected(whole: Exploration) -> tuple:  # type: ignore[type-arg]
    rejections: Rejections = whole.frontier.space.rejections
    if whole.frontier.pruned:
        rejections.add("search.bound", "candidates whose lower bound is no better than the best plan", whole.frontier.pruned)
    return rejections.result()


def _any_plan(problem: Problem, constraints: Constraints, options: SearchOptions, limits: Limits, watch: Watch) -> float | None:
    """Step time of a plan under changed circumstances, or None: enough to know whether a relaxation helps."""
    factory = _factory(problem, constraints)
    space = Space(problem, constraints)
    incumbents = Incumbents(problem, safe_only=constraints.memory_margin is not None)
    frontier = Frontier(space, factory)
    solver = Solver(space, factory, incumbents, limits, options.engine, lambda: watch.stop(2.0))
    while incumbents.best is None and not watch.stop(2.0):
        step = frontier.advance(float("inf"))
        if step is False:
            break
        if step is not True:
            left = solver.solve(step[1], step[0])
            if step[0] * (1 + SLACK) < left < float("inf"):
                frontier.put_back(left, step[1])
    return incumbents.best.step_s if incumbents.best else None


def _among_candidates(problem: Problem, constraints: Constraints, options: SearchOptions, watch: Watch) -> SearchResult:
    """The best of the strategies that the user listed, each priced; the list is the whole space, so the best is optimal."""
    from solver.domain.reading import layout_of

    incumbents = Incumbents(problem, safe_only=constraints.memory_margin is not None)
    rejections = Rejections()
    for i, strategy in enumerate(constraints.candidates or ()):
        plan, reasons = expand(problem, strategy)
        if plan is not None and not reasons and incumbents.offer_plan(plan) is not None:
            continue
        if plan is not None and not reasons:
            layout, reasons = layout_of(problem, plan)
            reasons = reasons or (price(problem, layout).reasons if layout is not None else ())
        code, text = (reasons[0].code, reasons[0].message) if reasons else ("memory.margin", "within memory but not within the margin")
        rejections.add(code, f"candidate {i}: {text}")
        if watch.stop():
            break
    best, done, listed = incumbents.best, not watch.stop(), len(constraints.candidates or ())
    reasons = () if best else (Reason(code="candidates.none", message=f"none of the {listed} candidates is legal and fits",
                                      fix="see `rejected` for the rule that each breaks"),)
    return SearchResult(outcome="infeasible" if best is None else "optimal" if done else "feasible", plan=best.plan if best else None,
                        predicted=best.predicted if best else None, bound_s=best.step_s if best and done else None,
                        gap=0.0 if best and done else None, alternatives=alternatives(incumbents, options.alternatives),
                        rejected=rejections.result(), baselines=(), reasons=reasons, relaxation=None,
                        search=SearchReport(engine="pricing", candidates=listed, pruned=0, solved=incumbents.priced, solver_calls=0,
                                            wall_s=watch.elapsed(), stopped="proof" if done else "time_limit"))
