"""What a few observed runs buy: some rows of each cluster are observed, the rest is scored before and after."""
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from solver.cost.estimate import estimate
from solver.cost.fitting import fit
from solver.cost.observation import Observation
from solver.domain.calibration import Calibration
from solver.domain.problem import Problem
from tests.accuracy.rows import Predict, Row
from tests.accuracy.scoring import Figures, Scored, figures_of, score

Fitting = Callable[[str, Sequence[Row]], Calibration]

SHARE = 3                                                  # a cluster must have this many times the rows that are observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """Figures of the rows that were not observed, in clusters large enough to observe some."""

    observed: int                                          # of each cluster
    clusters: int
    before: Figures
    after: Figures

    def worse(self) -> tuple[str, ...]:
        """Sources whose mean error grew by their own calibration."""
        return tuple(name for name, now in self.after.by_source.items() if now.mean > self.before.by_source[name].mean)


def calibrated(scored: Sequence[Scored], observed: int, fitting: Fitting, predict: Predict = estimate) -> Calibrated:
    """`scored`: all rows without calibration; `observed`: rows of each cluster that the fitting sees."""
    before, after, clusters = [], [], 0
    by_row = {id(s.row): s for s in scored}
    for name, rows in clusters_of(s.row for s in scored).items():
        if len(rows) < SHARE * observed:
            continue
        clusters += 1
        seen = spread_over(len(rows), observed)
        found = fitting(name, [row for i, row in enumerate(rows) if i in seen])
        rest = [row for i, row in enumerate(rows) if i not in seen]
        before += [by_row[id(row)] for row in rest]
        after += with_calibration(rest, found)
    return Calibrated(observed=observed, clusters=clusters, before=figures_of(before), after=score(after, predict))


def fitted(name: str, rows: Sequence[Row]) -> Calibration:
    """The library's fit to the measured step times of these rows."""
    return fit([Observation(problem=row.problem, what=row.layouts[0], step_time_s=row.step_time_s) for row in rows], name)


def clusters_of(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    """Rows that can be observed (a time, and one layout), by cluster."""
    clusters: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.step_time_s and len(row.layouts) == 1:
            clusters[row.cluster].append(row)
    return clusters


def spread_over(rows: int, chosen: int) -> set[int]:
    """Places of `chosen` rows, evenly over all.

    >>> sorted(spread_over(17, 5))
    [0, 3, 6, 10, 13]
    """
    return {i * rows // chosen for i in range(chosen)}


def with_calibration(rows: Iterable[Row], calibration: Calibration) -> list[Row]:
    """The same rows on calibrated problems; rows that shared a problem still do."""
    problems: dict[int, Problem] = {}
    return [replace(row, problem=problems.setdefault(id(row.problem), replace(row.problem, calibration=calibration))) for row in rows]
