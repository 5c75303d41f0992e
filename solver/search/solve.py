"""One outer choice, solved: every plan of it that could beat the incumbent is excluded by bound or priced exactly."""
from collections.abc import Callable
from dataclasses import dataclass, field

from solver.domain.options import Engine
from solver.search.bounds import SLACK, UNBOUNDED_S
from solver.search.capacity import kinds_within
from solver.search.even import layers_each
from solver.search.exact import Picks, exact_times
from solver.search.hopeful import hopeful_kinds
from solver.search.incumbent import Incumbents, layout_of_picks
from solver.search.labels import LabelRun, run
from solver.search.prices import CostToGo, cost_to_go
from solver.search.rounds import run_rounds
from solver.search.space import Choice, Space
from solver.search.tables import TableFactory, Tables, only

STEPS = (0.02, 0.04, 0.08, 0.16, 0.4, 1.0)                # how far beyond its bound a choice is searched, the first time, the second, ...
NEARLY = 1.01                                              # an incumbent this close above the target is searched up to at once
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes at which the search changes its ways: counted in labels, never in seconds, so that a run repeats itself. Tests set each to its least."""

    beam_labels: int = 300                                 # kept per level in the first, inexact pass that finds an incumbent
    plain_labels: int = 2_000                              # per level before prices are worth their making
    label_limit: int = 150_000                             # per level of the exact pass; beyond it CP-SAT takes over
    list_limit: int = 400_000                              # plans listed one by one where the bound is not tight
    tried: int = 4                                         # plans of each pass that are priced at once


@dataclass(slots=True)
class Tally:
    """Work done, for the report."""

    solved: int = 0
    solver_calls: int = 0
    labels: int = 0
    engines: set[str] = field(default_factory=set)

    def add(self, other: "Tally") -> None:
        self.solved += other.solved
        self.solver_calls += other.solver_calls
        self.labels += other.labels
        self.engines |= other.engines


class Solver:
    """Solves choices against a shared set of incumbents."""

    def __init__(self, space: Space, factory: TableFactory, incumbents: Incumbents, limits: Limits, engine: Engine, stop: Stop) -> None:
        self.space, self.factory, self.incumbents, self.limits, self.engine, self.stop = space, factory, incumbents, limits, engine, stop
        self.tally = Tally()
        self._tries: dict[Choice, int] = {}

    def solve(self, choice: Choice, bound: float) -> float:
        """A proved lower bound on every plan of the choice that has not been priced; infinite where none can beat the incumbent.

        `bound` holds before. Where the incumbent is far above it, only plans up to a little more are searched, and the choice comes back with the
        higher bound: choices are deepened in turn, so none is searched far beyond the optimum.
        """
        kinds = hopeful_kinds(self.space, self.factory, choice, self.incumbents.limit_s)
        if not kinds:
            return float("inf")
        t = self.factory.tables(choice, kinds)
        tries = self._tries[choice] = self._tries.get(choice, 0) + 1
        self.tally.solved += tries == 1
        if self.incumbents.limit_s == float("inf") and tries > len(STEPS):
            return self._unbounded(choice, t)
        target = min(self._cutoff(), bound * (1 + STEPS[min(tries, len(STEPS)) - 1]))
        if target * NEARLY >= self._cutoff():
            target = self._cutoff()
        if choice.virtual_stages > 1:
            return self._closed(self._rounds(choice, t, target), bound)
        kept = kinds_within(t, target, self.space.constraints.max_pp)
        if not kept.any():
            return self._closed(target, bound)
        t = only(t, kept)
        if self.engine == "cp_sat":
            return self._closed(self._by_cp_sat(choice, t, target), bound)
        return self._closed(self._by_labels(choice, t, target), bound)

    def _closed(self, left: float, bound: float) -> float:
        return float("inf") if left >= self._cutoff() * (1 - SLACK) else max(left, bound)

    def _by_labels(self, choice: Choice, t: Tables, target: float) -> float:
        if self._tries[choice] == 1 and self.incumbents.limit_s < float("inf"):
            beam = self._run(choice, t, cost_to_go(t, self._cutoff(), scales=()), self._cutoff(), dominance=True, most=self.limits.beam_labels)
            self._price(choice, t, beam)
        target = min(target, self._cutoff())
        go = cost_to_go(t, target, scales=())
        exact = self._run(choice, t, go, target, dominance=True, most=self.limits.plain_labels)
        if not exact.complete:
            go = cost_to_go(t, target)
            exact = self._run(choice, t, go, target, dominance=True, most=self.limits.label_limit)
        self._price(choice, t, exact)
        if not exact.complete:
            return 0.0 if self.stop() or self.engine == "dynamic_program" else self._by_cp_sat(choice, t, target)
        if exact.bound >= min(target, self._cutoff()) * (1 - SLACK):
            return exact.bound
        listed = self._run(choice, t, go, min(target, self._cutoff()), dominance=False, most=self.limits.list_limit)
        return max(self._settle(choice, t, listed), exact.bound)

    def _unbounded(self, choice: Choice, t: Tables) -> float:
        """No plan of any choice has been found yet: settle whether this one has any."""
        if choice.virtual_stages > 1:
            assert choice.stages is not None
            found = run_rounds(t, choice.stages, UNBOUNDED_S, max_labels=self.limits.beam_labels, stop=self.stop, even=self.space.tier == "even")
        else:
            found = self._run(choice, t, None, UNBOUNDED_S, dominance=True, most=self.limits.beam_labels)
        self._settle(choice, t, found)
        return float("inf") if found.complete and not found.plans else 0.0

    def _cutoff(self) -> float:
        limit = self.incumbents.limit_s
        return limit if limit < float("inf") else UNBOUNDED_S

    def _run(self, choice: Choice, t: Tables, go: CostToGo | None, cutoff: float, *, dominance: bool, most: int) -> LabelRun:
        self.tally.engines.add("dynamic_program")
        found = run(t, cutoff, dominance=dominance, max_labels=most, keep=64 if dominance else most, max_stages=self.space.constraints.max_pp, go=go,
                    stop=self.stop, each=layers_each(self.space, choice))
        self.tally.labels += found.labels
        return found

    def _rounds(self, choice: Choice, t: Tables, target: float) -> float:
        assert choice.stages is not None
        self.tally.engines.add("dynamic_program")
        listed = run_rounds(t, choice.stages, target, max_labels=self.limits.list_limit, stop=self.stop, even=self.space.tier == "even")
        self.tally.labels += listed.labels
        return self._settle(choice, t, listed)

    def _price(self, choice: Choice, t: Tables, found: LabelRun) -> None:
        """Price the best of what was found, fastest first by the exact recurrence, while it may come close to the incumbent."""
        plans = [p.stages for p in found.plans[:self.limits.tried]]
        times = exact_times(t, plans)
        for i in times.argsort(kind="stable"):
            if times[i] >= self._cutoff() * NEARLY:
                break
            self.incumbents.offer(layout_of_picks(choice, t.kinds, plans[i]))

    def _settle(self, choice: Choice, t: Tables, found: LabelRun) -> float:
        """Price all that was found and can beat the incumbent; a bound on what is left then."""
        plans = [p.stages for p in found.plans]
        times, left = exact_times(t, plans), found.bound_beyond
        for i in times.argsort(kind="stable"):
            if times[i] >= self._cutoff():
                break
            if not self.incumbents.settle(layout_of_picks(choice, t.kinds, plans[i]), float(times[i]), self.stop):
                left = min(left, float(times[i]))
        return left

    def _by_cp_sat(self, choice: Choice, t: Tables, target: float) -> float:
        """Plans in order of their bound, each excluded once priced, until the next bound is no better than the target or the incumbent."""
        from solver.search.formulation import stages as formulation  # OR-Tools takes seconds to load, and is not always needed

        self.tally.engines.add("cp_sat")
        excluded: list[Picks] = []
        while True:
            self.tally.solver_calls += 1
            limit = min(target, self._cutoff())
            answer = formulation.solve(t, limit, excluded=excluded, max_stages=self.space.constraints.max_pp, stop=self.stop,
                                       each=layers_each(self.space, choice))
            if answer.picks is None:
                return limit if answer.proved else answer.bound
            if not self.incumbents.settle(layout_of_picks(choice, t.kinds, answer.picks), float(exact_times(t, [answer.picks])[0]), self.stop):
                return answer.bound
            excluded.append(answer.picks)
            if answer.bound >= min(target, self._cutoff()) * (1 - formulation.TOLERANCE):
                return min(target, self._cutoff())
            if not answer.proved or self.stop() or len(excluded) > formulation.MAX_EXCLUDED:
                return answer.bound
