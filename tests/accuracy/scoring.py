"""How far predictions are from measured runs.

    step time   |predicted / measured - 1|: over all rows; and macro: the mean over groups, and over sources, of their means, so that no
                large sweep drowns the others
    memory      the same for the peak per GPU: counters of allocated bytes, and other counters (reserved, whole device) apart
    fit         rows measured to run or to run out of memory, against the predicted risk
    regret      per job of at least 4 different layouts: measured time of the layout that is predicted fastest (among those not called over)
                against the measured best. Rows that ask the same question are merged to their median; a tie counts as its worst
"""
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from solver.cost.estimate import estimate
from solver.domain.estimate import Estimate, Risk
from tests.accuracy.rows import Predict, Row

LAYOUTS_OF_A_JOB = 4
WITHIN = 0.02
FAR = 0.20
TIE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Relative errors of some rows: mean, median and 90th percentile of their size, their signed mean, and how many exceed FAR."""

    rows: int
    mean: float
    median: float
    p90: float
    bias: float
    far: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Rows by outcome and predicted risk."""

    ran_safe: int = 0
    ran_risky: int = 0
    ran_over: int = 0
    oom_safe: int = 0
    oom_risky: int = 0
    oom_over: int = 0

    @property
    def ran(self) -> int:
        return self.ran_safe + self.ran_risky + self.ran_over

    @property
    def oom(self) -> int:
        return self.oom_safe + self.oom_risky + self.oom_over

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean of the shares that "over" gets right among the runs that ran out of memory and among those that ran."""
        return (self.oom_over / self.oom + 1 - self.ran_over / self.ran) / 2 if self.ran and self.oom else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """Relative loss of the pick, over jobs."""

    jobs: int
    exact: int
    within: int                                            # by WITHIN
    mean: float
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One row with its prediction. Errors are predicted / measured - 1, None where one of the two is missing."""

    row: Row
    step_time_s: float | None
    risk: Risk | None
    step_time_error: float | None
    memory_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything that is said about one set of rows. `unpriced`: rows with a measured time and no predicted one."""

    rows: int
    step_time: Spread | None
    groups: int
    over_groups: float | None
    over_sources: float | None
    by_source: Mapping[str, Spread]
    by_device: Mapping[str, Spread]
    memory: Mapping[str, Spread]                           # by counter
    fit: Fit
    regret: Regret | None
    unpriced: tuple[str, ...]
    scored: tuple[Scored, ...]


def score(rows: Iterable[Row], predict: Predict = estimate) -> Figures:
    """Price all rows and compare."""
    return figures_of([compare(row, found) for row, found in priced(list(rows), predict)])


def figures_of(scored: Sequence[Scored]) -> Figures:
    unpriced = tuple(s.row.name for s in scored if s.row.step_time_s and not s.step_time_s)
    scored = [s for s in scored if not (s.row.step_time_s and not s.step_time_s)]
    timed = [(s.row, s.step_time_error) for s in scored if s.step_time_error is not None]
    groups, sources, devices = (by(timed, key) for key in ("group", "source", "device"))
    memory: dict[str, list[float]] = defaultdict(list)
    for s in scored:
        if s.memory_error is not None:
            memory[s.row.counter].append(s.memory_error)
    return Figures(rows=len(scored), step_time=spread([e for _, e in timed]), groups=len(groups), over_groups=macro(groups),
                   over_sources=macro(sources), by_source=_spreads(sources), by_device=_spreads(devices), memory=_spreads(memory),
                   fit=fit_of(scored), regret=regret_of(scored), unpriced=unpriced, scored=tuple(scored))


def priced(rows: Sequence[Row], predict: Predict) -> list[tuple[Row, Estimate]]:
    """In the order given; problem by problem inside, as only the last few problems are kept ready."""
    place: dict[int, int] = {}
    for row in rows:
        place.setdefault(id(row.problem), len(place))
    found = {i: rows[i].predicted(predict) for i in sorted(range(len(rows)), key=lambda i: place[id(rows[i].problem)])}
    return [(row, found[i]) for i, row in enumerate(rows)]


def compare(row: Row, found: Estimate) -> Scored:
    step_s, memory_gib = found.step_time_s, None
    if found.memory is not None:
        memory_gib = found.memory.stages[-1].total_gib if row.memory_of_last_stage and found.memory.stages else found.memory.peak_gib
    return Scored(row=row, step_time_s=step_s, risk=found.risk, step_time_error=_error(row, step_s, row.step_time_s),
                  memory_error=_error(row, memory_gib, row.memory_gib))


def _error(row: Row, predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1 if predicted is not None and measured and not row.out_of_memory else None


def by(timed: Iterable[tuple[Row, float]], key: str) -> dict[str, list[float]]:
    """Errors by a field of their rows."""
    found: dict[str, list[float]] = defaultdict(list)
    for row, error in timed:
        found[getattr(row, key)].append(error)
    return dict(found)


def macro(groups: Mapping[str, Sequence[float]]) -> float | None:
    """Mean over groups of the mean size of their errors."""
    return statistics.fmean(statistics.fmean(map(abs, errors)) for errors in groups.values()) if groups else None


def spread(errors: Sequence[float]) -> Spread | None:
    if not errors:
        return None
    sizes = sorted(map(abs, errors))
    return Spread(rows=len(sizes), mean=statistics.fmean(sizes), median=statistics.median(sizes), p90=sizes[math.floor(0.9 * (len(sizes) - 1))],
                  bias=statistics.fmean(errors), far=sum(size > FAR for size in sizes))


def _spreads(groups: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    return {name: found for name, errors in sorted(groups.items()) if (found := spread(errors)) is not None}


def fit_of(scored: Iterable[Scored]) -> Fit:
    """Over rows whose outcome is known: a measured time, or out of memory."""
    counts = Counter(("oom" if s.row.out_of_memory else "ran", s.risk) for s in scored if s.row.out_of_memory or s.row.step_time_s)
    return Fit(**{f"{outcome}_{risk}": n for (outcome, risk), n in counts.items() if risk is not None})


def regret_of(scored: Iterable[Scored]) -> Regret | None:
    jobs: dict[tuple[str, ...], dict[str, list[Scored]]] = defaultdict(lambda: defaultdict(list))
    for s in scored:
        if s.step_time_error is not None and s.row.job is not None:
            jobs[s.row.job][s.row.question].append(s)
    losses = [loss(list(layouts.values())) for layouts in jobs.values() if len(layouts) >= LAYOUTS_OF_A_JOB]
    if not losses:
        return None
    return Regret(jobs=len(losses), exact=sum(v < TIE for v in losses), within=sum(v <= WITHIN for v in losses), mean=statistics.fmean(losses),
                  worst=max(losses))


def loss(layouts: Sequence[Sequence[Scored]]) -> float:
    """Measured time of the layout that is predicted fastest over the measured best, less one; layouts are given as the rows that ran them."""
    merged = [(same[0].step_time_s or math.inf, statistics.median(s.row.step_time_s or math.inf for s in same), same[0].risk) for same in layouts]
    pool = [entry for entry in merged if entry[2] != "over"] or merged
    fastest = min(predicted for predicted, _, _ in pool)
    picked = max(measured for predicted, measured, _ in pool if predicted <= fastest * (1 + TIE))
    return picked / min(measured for _, measured, _ in merged) - 1
