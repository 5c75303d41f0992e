"""A problem's collective profiles as curves over bytes, by operation, node groups and ranks. Where they apply stands in `communicators.py`."""
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from solver.domain.profiles import CollectiveOp, Profiles

Formula = Callable[[float], float]                         # seconds of a message of so many bytes
Key = tuple[tuple[str, ...], int]                          # node groups (sorted), ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Seconds at measured message sizes, ascending.

    Exact at each, between two on the line through them in logarithms of both; beyond on the line through the nearest two in bytes, or in proportion
    to the bytes where that line falls, or begins below zero. Of a single size: as the formula changes from there. With `floor`, a lower bound instead
    that falls per byte, whatever the measurements do.
    """

    at: tuple[float, ...]
    seconds: tuple[float, ...]
    floor: bool = False

    def as_floor(self) -> "Sizes":
        """The same measurements as a lower bound."""
        return replace(self, floor=True)

    @property
    def span(self) -> tuple[float, float]:
        """Least and largest measured message."""
        return self.at[0], self.at[-1]

    def seconds_at(self, size_bytes: float, formula: Formula) -> float:
        """Seconds of one message."""
        value = self._value(size_bytes, formula)
        if not self.floor:
            return value
        return min([value, *(s * size_bytes / at for at, s in zip(self.at, self.seconds, strict=True) if at <= size_bytes)])

    def _value(self, size_bytes: float, formula: Formula) -> float:
        i = bisect_left(self.at, size_bytes)
        if i < len(self.at) and self.at[i] == size_bytes:
            return self.seconds[i]
        if len(self.at) == 1:
            return self.seconds[0] * formula(size_bytes) / formula(self.at[0])
        if 0 < i < len(self.at):
            (x0, x1), (s0, s1) = self.at[i - 1:i + 1], self.seconds[i - 1:i + 1]
            return math.exp(math.log(s0) + math.log(s1 / s0) * math.log(size_bytes / x0) / math.log(x1 / x0))
        constant, slope = self._secant(1 if i == 0 else i - 1)
        if i == 0:
            return constant + slope * size_bytes if constant >= 0.0 and slope > 0.0 else self.seconds[0] * size_bytes / self.at[0]
        return constant + slope * size_bytes if slope > 0.0 else self.seconds[-1] * size_bytes / self.at[-1]

    def line_at(self, size_bytes: float, formula: tuple[float, float]) -> tuple[float, float]:
        """(constant, seconds per byte) of large transfers in messages of about `size_bytes`.

        Through the two measured sizes around it, or the nearest two; through the origin and the larger where that line falls or begins below zero. Of
        a single size the formula's line, scaled to it.
        """
        if len(self.at) == 1:
            by = self.seconds[0] / (formula[0] + formula[1] * self.at[0])
            return formula[0] * by, formula[1] * by
        i = max(1, min(bisect_left(self.at, size_bytes), len(self.at) - 1))
        constant, slope = self._secant(i)
        return (constant, slope) if slope > 0.0 and constant >= 0.0 else (0.0, self.seconds[i] / self.at[i])

    def _secant(self, i: int) -> tuple[float, float]:
        """The line through sizes i - 1 and i."""
        (x0, x1), (s0, s1) = self.at[i - 1:i + 1], self.seconds[i - 1:i + 1]
        slope = (s1 - s0) / (x1 - x0)
        return s0 - slope * x0, slope


class Measurement(Protocol):
    """What formulas ask of measured sizes."""

    @property
    def span(self) -> tuple[float, float]:
        """Least and largest measured message."""

    def as_floor(self) -> "Measurement":
        """The same as a lower bound that falls per byte."""

    def seconds_at(self, size_bytes: float, formula: Formula) -> float:
        """Seconds of one message."""

    def line_at(self, size_bytes: float, formula: tuple[float, float]) -> tuple[float, float]:
        """(constant, seconds per byte) of large transfers in messages of about this size."""


Curves = Mapping[CollectiveOp, Measurement]                # of one communicator


def collectives_of(profiles: Profiles | None) -> Mapping[Key, Mapping[CollectiveOp, Sizes]] | None:
    """The curves of a problem's collective profiles; None where there are none."""
    if profiles is None or not profiles.collectives:
        return None
    rows: dict[Key, dict[CollectiveOp, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in profiles.collectives:
        rows[tuple(sorted(set(row.groups))), row.ranks][row.op].append((row.bytes, row.seconds))
    return {key: {op: Sizes(at=tuple(x for x, _ in sorted(points)), seconds=tuple(s for _, s in sorted(points))) for op, points in curves.items()}
            for key, curves in rows.items()}
