"""The search, as a recipe: simpler families first (they are baselines and incumbents), then the whole space, least bound first, to a proof."""
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from solver.cost.price import price
from solver.domain.estimate import Reason
from solver.domain.options import Constraints, Objective, SearchOptions
from solver.domain.placement import expand
from solver.domain.problem import Problem
from solver.errors import Fault, NotCovered, NothingFound
from solver.search import baselines
from solver.search.accuracy import soonest
from solver.search.bounds import SLACK
from solver.search.economy import leanest
from solver.search.explain import alternatives, reasons_for_none, smallest_relaxation
from solver.search.explore import Exploration, Watch, explore, table_factory
from solver.search.floor import memory_floor
from solver.search.frontier import Frontier
from solver.search.incumbent import Incumbents, fastest_first
from solver.search.meter import RATES, Meter, meter_of
from solver.search.result import Baseline, Cancelled, Report, SearchReport, SearchResult
from solver.search.seeds import sow
from solver.search.solve import Limits, Solver
from solver.search.space import Rejections, Space
from solver.search.tiers import tier_steps

RELAXATION_S = 3.0                                         # beyond the time limit, at most, to find out what would help


def search(problem: Problem, objective: Objective, constraints: Constraints, options: SearchOptions, report: Report = lambda progress: None,
           cancelled: Cancelled = lambda: False, *, limits: Limits = Limits(), clock: Callable[[], float] = time.monotonic,
           executor: Executor | None = None) -> SearchResult:
    """The best plan of the space, with a proof or with the bound that could not be closed.

    The space: equal pipelines; per stage its node group, tensor degree, width, recompute and layers; GPipe, 1F1B and interleaved schedules; ZeRO 0-3;
    context parallelism (ring and Ulysses); expert parallelism; any number of GPUs up to all. Without `memory_margin` among the constraints every plan
    that fits counts. `executor` takes solves that do not depend on each other (simpler families); the answer is the same
    without it.
    """
    refuse_uncovered(objective, constraints)
    meter = None if objective == "time_to_accuracy" else meter_of(problem, objective, constraints)
    if constraints.memory_margin is not None:
        problem = replace(problem, memory_margin=constraints.memory_margin)
    watch = Watch(options=options, report=report, cancelled=cancelled, clock=clock, started=clock())
    watch.tell(None, None, "generating candidates", force=True)
    if objective == "time_to_accuracy":
        return _soonest(problem, constraints, options, limits, watch)
    if constraints.candidates is not None:
        return _among_candidates(problem, constraints, options, watch, meter)
    if meter is not None:
        return _answer(problem, constraints, options, *leanest(problem, constraints, options, limits, watch, meter), limits, watch, meter)
    factory = table_factory(problem, constraints)
    others = baselines.Others(problem, constraints, options, limits, executor)
    uniform, alike = baselines.uniform(problem, constraints, options, factory, limits, watch)
    simpler_families = baselines.simpler_families(constraints)
    if alike is not None:
        others.add(simpler_families, alike)
    watch.phase = "search"
    whole = explore(problem, constraints, options, factory, limits, watch, [alike.best] if alike is not None and alike.best is not None else [])
    if alike is None:
        others.add(simpler_families, whole)
    beside = others.collect(factory, watch, lambda message: watch.tell(whole.frontier, whole.solver, message), whole)
    for simpler in beside:                                 # only an interrupted search loses to one
        if simpler.plan is not None and (simpler.step_time_s or 0.0) < whole.incumbents.limit_s:
            whole.incumbents.offer_plan(simpler.plan)
    whole = replace(whole, best=whole.incumbents.best)
    beside = baselines.from_known(beside + uniform, [*whole.incumbents.others.values()])
    above = baselines.above(problem, constraints, options, limits, whole, watch)
    return _answer(problem, constraints, options, whole, beside + above, limits, watch)


def refuse_uncovered(objective: Objective, constraints: Constraints) -> None:
    """Objectives and schedules that this version does not search, refused before any work."""
    faults = []
    if objective not in (searched := ("throughput", *RATES, "time_to_accuracy")):
        why = "means something only where requests wait for answers; training is judged by its step time" if objective == "latency" else ""
        faults.append(Fault(pointer="/objective", message=f"{objective!r} {why or 'is not searched by this version'}", legal=", ".join(searched)))
    if objective == "time_to_accuracy" and constraints.candidates is not None:
        faults.append(Fault(pointer="/constraints/candidates", message="listed strategies are priced for one batch size only", legal="null"))
    for i, name in enumerate(constraints.schedules or ()):
        if name not in ("gpipe", "1f1b", "interleaved"):
            faults.append(Fault(pointer=f"/constraints/schedules/{i}", message=f"{name!r} is not planned by this version",
                                legal="gpipe, 1f1b, interleaved"))
    if faults:
        raise NotCovered(*faults)


def _soonest(problem: Problem, constraints: Constraints, options: SearchOptions, limits: Limits, watch: Watch) -> SearchResult:
    watch.phase = "search"
    found = soonest(problem, constraints, options, limits, watch)
    result = _answer(found.problem, constraints, options, found.whole, [], limits, watch)
    gap = None if found.worth_s is None else max(0.0, 1 - found.bound_s / found.worth_s)
    return replace(result, objective="time_to_accuracy", bound_s=None, bound_worth=None if found.worth_s is None else found.bound_s, gap=gap,
                   batch_sizes=found.choices)


def _answer(problem: Problem, constraints: Constraints, options: SearchOptions, whole: Exploration, beside: list[Baseline], limits: Limits,
            watch: Watch, meter: Meter | None = None) -> SearchResult:
    best = whole.best
    worth = None if best is None else meter.worth(best) if meter is not None else best.step_s
    watch.phase = "done"
    reasons: tuple[Reason, ...] = ()
    relaxation = None
    if best is None and whole.proved:
        reasons = reasons_for_none(problem, constraints, table_factory(problem, constraints))
        until = max(options.time_limit_s, watch.elapsed()) + RELAXATION_S
        relaxation = smallest_relaxation(problem, constraints, lambda p, c: _any_plan(p, c, options, limits, lambda: watch.past(until)))
    watch.best_s, watch.bound_s = (best.step_s if best else None), whole.bound_s if best and meter is None else None
    watch.tell(whole.frontier, whole.solver, "done", force=True)
    stopped = "proof" if whole.proved else "cancelled" if watch.cancelled() else "time_limit"
    if best is None and stopped == "time_limit":
        raise _nothing_found(options)
    tally = whole.solver.tally
    return SearchResult(
        outcome="optimal" if best is not None and whole.proved else "infeasible" if whole.proved else "feasible", plan=best.plan if best else None,
        predicted=best.predicted if best else None, **_bound(meter, whole.bound_s if best else None, worth),
        alternatives=alternatives(whole.incumbents, options.alternatives), rejected=_rejected(whole), baselines=tuple(beside), reasons=reasons,
        tiers=tier_steps(constraints, best, beside) if meter is None else (),
        relaxation=relaxation,
        search=SearchReport(engine="+".join(sorted(tally.engines)) or "bounds", candidates=whole.frontier.candidates, pruned=whole.frontier.pruned,
                            solved=tally.solved, solver_calls=tally.solver_calls,
                            wall_s=watch.elapsed(), stopped=stopped))


def _bound(meter: Meter | None, bound: float | None, worth: float | None) -> dict[str, Any]:
    """What is proved of the answer, in the unit of the objective."""
    gap = None if bound is None or worth is None else max(0.0, 1 - bound / worth) if worth else 0.0
    if meter is None:
        return {"bound_s": bound, "gap": gap}
    return {"bound_s": None, "gap": gap, "objective": meter.objective, "bound_worth": bound}


def _rejected(whole: Exploration) -> tuple:  # type: ignore[type-arg]
    rejections: Rejections = whole.frontier.space.rejections
    if whole.frontier.pruned:
        rejections.add("search.bound", "candidates whose lower bound is no better than the best plan", whole.frontier.pruned)
    return rejections.result()


def _nothing_found(options: SearchOptions) -> NothingFound:
    return NothingFound(Fault(pointer="/search/time_limit_s", legal="more time, or fewer choices in constraints",
                              message=f"no plan was found within {options.time_limit_s:g} s, and none is excluded: neither an answer nor a proof"))


def _any_plan(problem: Problem, constraints: Constraints, options: SearchOptions, limits: Limits, stop: Callable[[], bool]) -> float | None:
    """Step time of a plan under changed circumstances, or None: enough to know whether a relaxation helps."""
    factory = table_factory(problem, constraints)
    space = Space(problem, constraints)
    incumbents = Incumbents(problem, constraints)
    frontier = Frontier(space, factory, stop)
    if memory_floor(space, factory).excludes_all:
        return None
    sow(space, factory, incumbents, stop)
    solver = Solver(space, factory, incumbents, limits, options.engine, stop)
    while incumbents.best is None and not stop():
        step = frontier.advance(float("inf"))
        if step is False:
            break
        if step is not True:
            left = solver.solve(step[1], step[0])
            if step[0] * (1 + SLACK) < left < float("inf"):
                frontier.put_back(left, step[1])
    return incumbents.best.step_s if incumbents.best else None


def _among_candidates(problem: Problem, constraints: Constraints, options: SearchOptions, watch: Watch, meter: Meter | None) -> SearchResult:
    """The best of the strategies that the user listed, each priced; the list is the whole space, so the best is optimal."""
    from solver.domain.reading import layout_of

    incumbents = Incumbents(problem, constraints, rank=meter.rank if meter is not None else fastest_first)
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
    worth = None if best is None else meter.worth(best) if meter is not None else best.step_s
    if best is None and not done and not watch.cancelled():
        raise _nothing_found(options)
    reasons = () if best else (Reason(code="candidates.none", message=f"none of the {listed} candidates is legal and fits",
                                      fix="see `rejected` for the rule that each breaks"),)
    return SearchResult(outcome="feasible" if not done else "infeasible" if best is None else "optimal", plan=best.plan if best else None,
                        predicted=best.predicted if best else None, **_bound(meter, worth if done else None, worth),
                        alternatives=alternatives(incumbents, options.alternatives), rejected=rejections.result(), baselines=(), reasons=reasons,
                        relaxation=None, search=SearchReport(engine="pricing", candidates=listed, pruned=0, solved=incumbents.priced,
                                                             solver_calls=0, wall_s=watch.elapsed(), stopped="proof" if done else "time_limit"))
