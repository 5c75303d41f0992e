"""Time to accuracy: the size of the batch is a choice. With a curve of samples that training needs by batch size, steps(B) = ceil(samples(B) / B),
a plan for batch B takes steps(B) x T. The sizes are searched one after the other, each only for plans that end sooner than the best so far.

Proof: with V the time of the best plan so far, a plan for B that ends sooner has T < V / steps(B). A throughput search below that ceiling finds
the least such T or proves that there is none. Whatever it leaves open takes at least steps(B) x its bound; the least of those and V bounds every
plan of every listed size.
"""
from dataclasses import dataclass, replace

from solver.domain.options import Constraints, SearchOptions
from solver.domain.problem import Problem
from solver.errors import Fault, NotCovered
from solver.search.explore import Exploration, Watch, explore, table_factory
from solver.search.incumbent import Priced
from solver.search.result import BatchChoice
from solver.search.solve import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Soonest:
    """The search of the size that ends first (of the first size where none has a plan), with the work of all; times are of the whole training."""

    whole: Exploration
    problem: Problem
    worth_s: float | None
    bound_s: float
    choices: tuple[BatchChoice, ...]


def refuse_without_curve(problem: Problem) -> None:
    """Raise `NotCovered` where there is no curve."""
    if not problem.batch_efficiency:
        raise NotCovered(Fault(pointer="/batch_efficiency", message="'time_to_accuracy' needs the samples that training takes, by batch size",
                               legal="a list of {global_batch_size, samples}"))


def soonest(problem: Problem, constraints: Constraints, options: SearchOptions, limits: Limits, watch: Watch) -> Soonest:
    """The plan and batch size of least steps x step time, with a proof or the bound reached. Each size may take its even share of the time."""
    refuse_without_curve(problem)
    quiet = replace(watch, report=lambda p: watch.report(replace(p, bound_s=None, gap=None)))       # bounds of one size bound no answer
    points, found, choices = problem.batch_efficiency, list[tuple[Exploration, Problem]](), list[BatchChoice]()
    best_s, left_s, best = float("inf"), float("inf"), 0
    for i, point in enumerate(points):
        sized = problem.with_batch(point.global_batch_size)
        here = explore(sized, constraints, options, table_factory(sized, constraints), limits, quiet, list[Priced](), share=(i + 1) / len(points),
                       ceiling_s=best_s / point.steps)
        found.append((here, sized))
        if not here.proved:
            left_s = min(left_s, here.bound_s * point.steps)
        if here.best is not None and here.best.step_s * point.steps < best_s:
            best_s, best = here.best.step_s * point.steps, i
        choices.append(BatchChoice(global_batch_size=point.global_batch_size, steps=point.steps, step_time_s=here.best.step_s if here.best else None,
                                   time_s=here.best.step_s * point.steps if here.best else None, proved=here.proved))
    whole, sized = found[best]
    for here, _ in found:
        if here is not whole:
            whole.frontier.candidates += here.frontier.candidates
            whole.frontier.pruned += here.frontier.pruned
            whole.solver.tally.add(here.solver.tally)
    return Soonest(whole=replace(whole, proved=left_s >= best_s), problem=sized, worth_s=best_s if whole.best is not None else None,
                   bound_s=min(best_s, left_s), choices=tuple(choices))
