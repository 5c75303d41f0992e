"""Move or stay: the plan whose remaining steps, with the cost of getting there, take least."""
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from solver.cost.estimate import estimate
from solver.cost.setting import setting
from solver.domain.estimate import Estimate
from solver.domain.plan import Pipeline, Plan
from solver.domain.problem import Problem
from solver.search.replan.answer import Move, Option, Replan
from solver.search.replan.moving import move
from solver.search.replan.relabel import kept_in_place

SHIFTS = 40                                                # layers moved over one boundary, at most, from the old plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a move is weighed by. `restart_s` is paid by every move, whatever it carries."""

    remaining_steps: int
    restart_s: float = 0.0
    checkpoint_gb_s: float | None = None
    only_safe: bool = False                                # plans that do not keep the memory margin do not count

    def count(self, found: Estimate) -> bool:
        return found.feasible and found.step_time_s is not None and (found.risk == "safe" or not self.only_safe)


@dataclass(frozen=True, slots=True)
class _Weighed:
    name: str
    plan: Plan
    predicted: Estimate
    step_s: float
    move: Move
    cost_s: float
    total_s: float


def decide(problem: Problem, old: Plan, found: Sequence[Plan], bound_s: float | None, terms: Terms) -> Replan:
    """Weigh the old plan on the changed cluster against the plans `found` for it and against the old plan with layers shifted between its stages.

    `bound_s` is a proved lower bound on the step time of every plan: then nothing takes less than the old plan does, or than restart and remaining
    steps at that bound, and `gap` tells how far the answer may be from it.
    """
    stay = estimate(problem, old)
    steps = terms.remaining_steps
    stay_s = stay.step_time_s * steps if terms.count(stay) and stay.step_time_s is not None else None
    others = list(_weighed(problem, old, found, terms))
    others += _shifted(problem, old, terms)
    best = min(others, key=lambda w: w.total_s, default=None)
    moves = best is not None and (stay_s is None or best.total_s < stay_s)
    total_s = best.total_s if moves and best is not None else stay_s
    bound_total = None if bound_s is None or total_s is None else min(terms.restart_s + bound_s * steps, total_s)
    saved = best.step_s - stay.step_time_s if best is not None and stay_s is not None and stay.step_time_s is not None else None
    options = (Option(name="stay", step_time_s=stay.step_time_s, move_s=0.0, moved_bytes=0.0, total_s=stay_s),
               *(Option(name=w.name, step_time_s=w.step_s, move_s=w.move.seconds, moved_bytes=w.move.moved_bytes, total_s=w.total_s) for w in others))
    return Replan(
        decision="move" if moves else "stay" if stay_s is not None else "stop", reason=_words(moves, stay, stay_s, best, steps), stay=stay,
        plan=best.plan if moves and best is not None else old if stay_s is not None else None,
        predicted=best.predicted if moves and best is not None else stay if stay_s is not None else None,
        move=best.move if best is not None else None, cost_s=best.cost_s if best is not None else 0.0,
        gain_s=-saved * steps if saved is not None else None,
        break_even_steps=best.cost_s / -saved if best is not None and saved is not None and saved < 0 else None,
        total_s=total_s, bound_total_s=bound_total, gap=None if bound_total is None or not total_s else 1 - bound_total / total_s, options=options)


def _words(moves: bool, stay: Estimate, stay_s: float | None, best: _Weighed | None, steps: int) -> str:
    if best is None:
        return "no other plan was found" if stay_s is not None else "the old plan cannot go on, and no other was found"
    if stay_s is None or stay.step_time_s is None:
        why = stay.reasons[0].message if stay.reasons else "it does not keep the memory margin"
        return f"the old plan cannot go on: {why}"
    gain_s = (stay.step_time_s - best.step_s) * steps
    if gain_s <= 0:
        return "no other plan found is faster"
    verb = "exceeds" if moves else "does not exceed"
    return f"a gain of {gain_s:.3g} s over {steps} steps {verb} the {best.cost_s:.3g} s that moving takes"


def _weighed(problem: Problem, old: Plan, plans: Iterable[Plan], terms: Terms) -> Iterator[_Weighed]:
    for i, plan in enumerate(plans):
        weighed = _weigh(problem, old, plan, terms, "searched" if i == 0 else f"alternative {i}")
        if weighed is not None:
            yield weighed


def _weigh(problem: Problem, old: Plan, plan: Plan, terms: Terms, name: str) -> _Weighed | None:
    predicted = estimate(problem, plan)
    if not terms.count(predicted) or predicted.step_time_s is None:
        return None
    renamed = kept_in_place(setting(problem), old, plan)
    again = estimate(problem, renamed)
    step_s = predicted.step_time_s
    if terms.count(again) and again.step_time_s is not None and again.step_time_s <= step_s:
        plan, predicted, step_s = renamed, again, again.step_time_s
    moved = move(setting(problem), old, plan, terms.checkpoint_gb_s)
    cost_s = moved.seconds + terms.restart_s
    return _Weighed(name, plan, predicted, step_s, moved, cost_s, cost_s + step_s * terms.remaining_steps)


def _shifted(problem: Problem, old: Plan, terms: Terms) -> list[_Weighed]:
    """The old plan with layers moved over boundaries of its stages, one at a time, for as long as the step time falls: on the same GPUs."""
    now, best_s = old, _step_s(problem, old, terms)
    for _ in range(SHIFTS):
        tried = [(seconds, i, plan) for i, plan in enumerate(_neighbours(now)) if (seconds := _step_s(problem, plan, terms)) is not None]
        if not tried or (best_s is not None and min(tried)[0] >= best_s):
            break
        best_s, _, now = min(tried)
    weighed = _weigh(problem, old, now, terms, "shifted") if now is not old else None
    return [weighed] if weighed is not None else []


def _step_s(problem: Problem, plan: Plan, terms: Terms) -> float | None:
    found = estimate(problem, plan)
    return found.step_time_s if terms.count(found) else None


def _neighbours(plan: Plan) -> Iterator[Plan]:
    """Plans of equal pipelines with one boundary one layer further; none where stages are virtual or pipelines differ."""
    sizes = [[s.num_layers for s in p.stages] for p in plan.pipelines]
    if plan.virtual_stages > 1 or any(row != sizes[0] for row in sizes):
        return
    for j in range(len(sizes[0]) - 1):
        for a, b in ((j, j + 1), (j + 1, j)):
            if sizes[0][a] > 1:
                row = list(sizes[0])
                row[a], row[b] = row[a] - 1, row[b] + 1
                yield replace(plan, pipelines=tuple(_with_sizes(p, row) for p in plan.pipelines))


def _with_sizes(pipeline: Pipeline, sizes: Sequence[int]) -> Pipeline:
    first, stages = 0, []
    for stage, size in zip(pipeline.stages, sizes, strict=True):
        stages.append(replace(stage, layers=((first, first + size - 1),)))
        first += size
    return replace(pipeline, stages=tuple(stages))
