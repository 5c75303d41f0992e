"""Plans that have been laid onto the cluster and priced by the cost model: the best so far, and the runners-up."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd

from solver.cost.price import price
from solver.domain.estimate import Estimate
from solver.domain.layout import Edge, Layout, StageLayout
from solver.domain.placement import layers_by_stage, place, placements
from solver.domain.options import Constraints
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.domain.reading import layout_of
from solver.search.bounds import SLACK
from solver.search.budget import Budget, price_budget
from solver.search.labels import StagePick
from solver.search.space import Choice, Kind

KEPT = 200                                                 # runners-up remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A plan and its price; `layout` is the plan in counts."""

    layout: Layout
    predicted: Estimate
    plan: Plan

    @property
    def step_s(self) -> float:
        return self.predicted.step_time_s if self.predicted.step_time_s is not None else float("inf")


Rank = Callable[[Priced], tuple[float, ...]]              # the least is the best


def fastest_first(plan: Priced) -> tuple[float, ...]:
    return (plan.step_s,)


def layout_of_picks(choice: Choice, kinds: Sequence[Kind], picks: Sequence[StagePick]) -> Layout:
    """The layout that a search result means."""
    v = choice.virtual_stages
    sizes = [p.layers // v for _ in range(v) for p in picks]
    ranges = layers_by_stage(sizes, len(picks))
    stages, common = [], gcd(*(kinds[p.kind].spec.dp for p in picks)) if choice.any_replicas else 1
    for pick, layers in zip(picks, ranges, strict=True):
        spec = kinds[pick.kind].spec
        stages.append(StageLayout(layers=layers, tp=spec.tp, cp=spec.cp, dp=spec.dp // common, ep=spec.ep, etp=spec.etp, recompute=spec.recompute,
                                  zero_stage=spec.zero_stage, groups=spec.groups))
    return Layout(stages=tuple(stages), edges=tuple(Edge(same_node=False) for _ in stages), replicas=choice.replicas * common,
                  micro_batches=choice.micro_batches, micro_batch_size=choice.micro_batch_size // common, schedule=choice.schedule, virtual_stages=v,
                  sequence_parallel=choice.context.sequence_parallel and any(s.tp > 1 for s in stages), ulysses=choice.context.ulysses,
                  vocabulary_parallel_loss=True, framework=choice.framework)


class Incumbents:
    """Prices layouts once each; `limit_s` is the step time that a plan must beat: that of the best plan, at first `ceiling_s`."""

    def __init__(self, problem: Problem, constraints: Constraints, budgets: Sequence[Budget] = (), ceiling_s: float = float("inf"),
                 rank: Rank = fastest_first) -> None:
        self.problem, self.safe_only, self.rank = problem, constraints.memory_margin is not None, rank
        self.slowest_s = float("inf") if constraints.max_step_time_s is None else constraints.max_step_time_s * (1 + SLACK)
        self.budgets, self.ceiling_s = (*price_budget(problem, constraints), *budgets), min(ceiling_s, self.slowest_s)
        self.best: Priced | None = None
        self.others: dict[Layout, Priced] = {}
        self.priced = 0

    @property
    def limit_s(self) -> float:
        return self.best.step_s if self.best is not None else self.ceiling_s

    def offer(self, layout: Layout) -> Priced | None:
        """Lay the layout tightly onto the cluster and price it; None where it does not fit, or breaks a rule or its memory."""
        plan = place(self.problem, layout)
        return self.offer_plan(plan) if plan is not None else None

    def settle(self, layout: Layout, least_s: float, stop: Callable[[], bool]) -> bool:
        """Price every way to lay out a layout that can beat the best plan; `least_s` is its time if all neighbours that may share a node did.

        False where there may be ways that were not tried.
        """
        def hopeful(near: tuple[bool, ...]) -> bool:
            """Whether the layout is fast enough with these neighbours side by side."""
            seconds = price(self.problem, replace(layout, edges=tuple(Edge(same_node=side) for side in near))).step_time_s
            return seconds is None or seconds < self.limit_s * (1 - SLACK)

        for plan in placements(self.problem, layout, hopeful):
            if plan is None or stop():
                return False
            read, reasons = layout_of(self.problem, plan)
            if read is None or reasons:
                continue
            priced = self._price(read, plan)
            if priced is None or least_s >= self.limit_s * (1 - SLACK) or priced.step_s <= least_s * (1 + SLACK):
                return True                                # memory and rules are the same in every placement
        return True

    def offer_plan(self, plan: Plan) -> Priced | None:
        """Price a plan and remember it where it is legal."""
        read, reasons = layout_of(self.problem, plan)
        return None if read is None or reasons else self._price(read, plan)

    def _price(self, read: Layout, plan: Plan) -> Priced | None:
        if read in self.others:
            return self.others[read]
        predicted = price(self.problem, read)
        self.priced += 1
        if not predicted.feasible or predicted.step_time_s is None or (self.safe_only and predicted.risk != "safe"):
            return None
        if predicted.step_time_s > self.slowest_s or not all(budget.keeps(read) for budget in self.budgets):
            return None
        found = Priced(layout=read, predicted=predicted, plan=plan)
        self.take(found)
        return found

    def take(self, found: Priced) -> None:
        """Remember a plan priced elsewhere under the same problem."""
        self.others[found.layout] = found
        if found.step_s < self.ceiling_s and (self.best is None or self.rank(found) < self.rank(self.best)):
            self.best = found
        if len(self.others) > 2 * KEPT:
            kept = sorted(self.others.values(), key=self.rank)[:KEPT]
            self.others = {p.layout: p for p in kept}
