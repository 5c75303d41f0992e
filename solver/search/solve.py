"""One outer choice, solved: every plan of it that could beat the incumbent is excluded by bound or priced exactly."""
from collections.abc import Callable
from dataclasses import dataclass, field

from solver.domain.options import Engine
from solver.search.bounds import SLACK, quick_bound
from solver.search.exact import Picks, exact_times
from solver.search.incumbent import Incumbents, layout_of_picks
from solver.search.labels import LabelRun, run
from solver.search.prices import CostToGo, cost_to_go
from solver.search.rounds import run_rounds
from solver.search.space import Choice, Space
from solver.search.tables import TableFactory, Tables

FIRST_FACTORS = (1.1, 1.3, 1.8, 3.0, 10.0, 1e12)           # times the quick bound
UNBOUNDED_S = 1e12
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes at which the search changes its ways: counted in labels, never in seconds, so that a run repeats itself. Tests set each to its least."""

    beam_labels: int = 300                                 # kept per level in the first, inexact pass that finds an incumbent
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


class Solver:
    """Solves choices against a shared set of incumbents."""

    def __init__(self, space: Space, factory: TableFactory, incumbents: Incumbents, limits: Limits, engine: Engine, stop: Stop) -> None:
        self.space, self.factory, self.incumbents, self.limits, self.engine, self.stop = space, factory, incumbents, limits, engine, stop
        self.tally = Tally()

    def solve(self, choice: Choice) -> float:
        """A proved lower bound on every plan of the choice that has not been priced: the incumbent's time where the choice is closed."""
        kinds = self.space.kinds(choice)
        if not kinds:
            return float("inf")
        t = self.factory.tables(choice, kinds)
        if quick_bound(t) >= self._cutoff() and choice.virtual_stages == 1:
            return float("inf")
        self.tally.solved += 1
        if choice.virtual_stages > 1:
            return self._rounds(choice, t)
        if self.engine == "cp_sat":
            return self._by_cp_sat(choice, t)
        if self.incumbents.best is None and not self._first(choice, t):
            return float("inf")
        go = cost_to_go(t, self._cutoff(), scales=())
        first = self._run(t, go, dominance=True, most=self.limits.beam_labels)
        self._price(choice, t, first)
        if first.bound >= self._cutoff() * (1 - SLACK):
            return float("inf")
        go = cost_to_go(t, self._cutoff())
        exact = self._run(t, go, dominance=True, most=self.limits.label_limit)
        self._price(choice, t, exact)
        if exact.bound >= self._cutoff() * (1 - SLACK):
            return float("inf")
        if not exact.complete:
            return float(exact.bound) if self.stop() or self.engine == "dynamic_program" else self._by_cp_sat(choice, t)
        listed = self._run(t, go, dominance=False, most=self.limits.list_limit)
        self._price(choice, t, listed, every=True)
        return float("inf") if listed.complete else exact.bound

    def first(self, choice: Choice) -> None:
        """Look for any legal plan of the choice, for those who ask only whether there is one."""
        kinds = self.space.kinds(choice)
        if kinds and choice.virtual_stages == 1:
            self._first(choice, self.factory.tables(choice, kinds))

    def _first(self, choice: Choice, t: Tables) -> bool:
        """Look for any plan, below ever higher cut-offs; False where the last, unbounded pass proves that there is none."""
        floor = quick_bound(t)
        for factor in FIRST_FACTORS:
            found = self._run(t, None, dominance=True, most=self.limits.beam_labels, cutoff=floor * factor)
            self._price(choice, t, found)
            if self.incumbents.best is not None:
                return True
        return bool(found.plans) or not found.complete

    def _cutoff(self) -> float:
        limit = self.incumbents.limit_s
        return limit if limit < float("inf") else UNBOUNDED_S

    def _run(self, t: Tables, go: CostToGo | None, *, dominance: bool, most: int, cutoff: float | None = None) -> LabelRun:
        self.tally.engines.add("dynamic_program")
        found = run(t, self._cutoff() if cutoff is None else cutoff, dominance=dominance, max_labels=most, keep=64 if dominance else most, max_stages=self.space.constraints.max_pp, go=go, stop=self.stop)
        self.tally.labels += found.labels
        return found

    def _rounds(self, choice: Choice, t: Tables) -> float:
        assert choice.stages is not None
        self.tally.engines.add("dynamic_program")
        if self.limits.beam_labels < self.limits.list_limit:
            beam = run_rounds(t, choice.stages, self._cutoff(), max_labels=self.limits.beam_labels, stop=self.stop)
            self._price(choice, t, beam)
            if beam.complete:
                self._price(choice, t, beam, every=True)
                return float("inf")
        listed = run_rounds(t, choice.stages, self._cutoff(), max_labels=self.limits.list_limit, stop=self.stop)
        self.tally.labels += listed.labels
        self._price(choice, t, listed, every=True)
        return float("inf") if listed.complete else 0.0

    def _price(self, choice: Choice, t: Tables, found: LabelRun, every: bool = False) -> None:
        """Price what was found, fastest first by the exact recurrence, as long as it can beat the incumbent (all such plans with `every`)."""
        plans = [p.stages for p in (found.plans if every else found.plans[:self.limits.tried])]
        if not plans:
            return
        times = exact_times(t, plans)
        for i in times.argsort(kind="stable"):
            if times[i] >= self._cutoff() * (1 + (0.0 if every else 0.02)):
                break
            self._offer(choice, t, plans[i])

    def _offer(self, choice: Choice, t: Tables, picks: Picks) -> None:
        self.incumbents.offer(layout_of_picks(choice, t.kinds, picks))

    def _by_cp_sat(self, choice: Choice, t: Tables) -> float:
        """Plans in order of their bound, each excluded once priced, until the next bound is no better than the incumbent."""
        from solver.search.formulation import stages as formulation  # OR-Tools takes seconds to load, and is not always needed

        self.tally.engines.add("cp_sat")
        excluded: list[Picks] = []
        while True:
            self.tally.solver_calls += 1
            answer = formulation.solve(t, self._cutoff(), excluded=excluded, max_stages=self.space.constraints.max_pp, stop=self.stop)
            if answer.picks is not None:
                self._offer(choice, t, answer.picks)
                excluded.append(answer.picks)
            if answer.bound >= self._cutoff() * (1 - SLACK) or (answer.proved and answer.picks is None):
                return float("inf")
            if answer.picks is None or not answer.proved or self.stop():
                return answer.bound
