"""Layouts measured on one job: would the fastest prediction have been a good choice, and is what ran out of memory never called safe?

`python -m tests.accuracy.layouts RUNS` prints every group of runs and exits 1 where the aims are missed. They are those of the layout study of
Hagemann et al. 2023 (arXiv 2311.05610), whose runs may be used but not redistributed: point it at a file that holds them.
"""
import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.accuracy.rows import load
from tests.accuracy.scoring import LAYOUTS_OF_A_JOB, Fit, Scored, fit_of, loss, score

NEAR = 0.05                                                # a pick this close to the measured best is a good one,
OF_TEN = 0.8                                               # in at least this share of the groups,
FURTHEST = 0.12                                            # and none is further off
CALLED_SAFE = 0.03                                         # of the runs that ran out of memory, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """One group of runs: layouts with a measured time, and what the one predicted fastest loses to the measured best, relatively."""

    group: str
    layouts: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    picks: tuple[Pick, ...]
    fit: Fit

    @property
    def near(self) -> float:
        """Share of the groups with a good pick."""
        return sum(p.loss <= NEAR for p in self.picks) / len(self.picks) if self.picks else 1.0

    @property
    def worst(self) -> float:
        return max((p.loss for p in self.picks), default=0.0)

    @property
    def called_safe(self) -> float:
        """Share of the runs out of memory that are called safe."""
        return self.fit.oom_safe / self.fit.oom if self.fit.oom else 0.0

    @property
    def passed(self) -> bool:
        return self.near >= OF_TEN and self.worst <= FURTHEST and self.called_safe <= CALLED_SAFE


def judged(scored: Iterable[Scored]) -> Verdict:
    """The picks of all groups of enough layouts, and the outcomes in memory."""
    every = list(scored)
    groups: dict[str, dict[str, list[Scored]]] = defaultdict(lambda: defaultdict(list))
    for s in every:
        if s.step_time_error is not None:
            groups[s.row.group][s.row.question].append(s)
    picks = [Pick(group=name, layouts=len(of), loss=loss(list(of.values()))) for name, of in sorted(groups.items()) if len(of) >= LAYOUTS_OF_A_JOB]
    return Verdict(picks=tuple(picks), fit=fit_of(every))


def lines(verdict: Verdict) -> Iterator[str]:
    """The verdict in words."""
    for pick in verdict.picks:
        yield f"{pick.group}: {pick.loss:.1%} behind the best of {pick.layouts} layouts"
    near = sum(p.loss <= NEAR for p in verdict.picks)
    yield f"{near} of {len(verdict.picks)} picks within {NEAR:.0%}, the worst {verdict.worst:.1%} behind"
    yield f"{verdict.fit.oom_safe} of {verdict.fit.oom} runs out of memory called safe ({verdict.called_safe:.1%})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy.layouts", description=__doc__)
    parser.add_argument("runs", type=Path, help="measured runs, .csv or .jsonl")
    parser.add_argument("--source", default="hag", help="source of the runs, as their ids begin (default: hag)")
    given = parser.parse_args(arguments)
    rows = [row for row in load(given.runs) if row.source == given.source]
    if not rows:
        print(f"{given.runs} holds no runs of {given.source}", file=sys.stderr)
        return 1
    verdict = judged(score(rows).scored)
    for line in lines(verdict):
        print(line)
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
