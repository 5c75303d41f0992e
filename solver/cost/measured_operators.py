"""Operator profiles of one GPU type as tables: seconds of matrix products and attention cores at shapes inside what was measured, else None.

Between measured shapes the time lies on straight lines in logarithms (in sequences times heads: on straight lines), one dimension after the other, so
that it is exact at each, lies between neighbours, and grows where they grow. Nothing is carried beyond the data.
"""
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from solver.cost.measured import Points
from solver.domain.operators import AttentionProfile, GemmProfile

Line = tuple[tuple[float, ...], tuple[float, ...]]         # ascending places, and the value at each
Of = Callable[[float], float | None]                       # the value at one place of another dimension


def between(places: tuple[float, ...], x: float, value: Of) -> float | None:
    """The value at x from those at its two neighbours among `places`, in logarithms of both; at a place itself its own. None outside, or where a
    neighbour has none."""
    i = bisect_left(places, x)
    if i < len(places) and places[i] == x:
        return value(x)
    if not 0 < i < len(places):
        return None
    low, high = value(places[i - 1]), value(places[i])
    if low is None or high is None:
        return None
    share = math.log(x / places[i - 1]) / math.log(places[i] / places[i - 1])
    return math.exp(math.log(low) + share * math.log(high / low))


def _sorted(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(sorted(set(values)))


@dataclass(frozen=True, slots=True)
class Plane:
    """Products of one inner dimension, by columns."""

    columns: tuple[float, ...]
    lines: dict[float, Line]

    def value(self, m: float, n: float) -> float | None:
        return between(self.columns, n, lambda at: _on_line(self.lines[at], m))


@dataclass(frozen=True, slots=True)
class GemmTable:
    """Products by k, then n, then m. `slower`: what the figures are to be multiplied with, for a node group that is slower than its GPU type."""

    inner: tuple[float, ...]
    rows: tuple[float, ...]
    planes: dict[float, Plane]
    slower: float = 1.0
    floor: bool = False

    def seconds(self, m: float, n: float, k: float, formula: Callable[[float, float, float], float]) -> float | None:
        """Seconds of one product; None outside. As a floor: a bound that falls as m grows, per m, and as k grows, per k, whatever was measured."""
        value = self._value(m, n, k)
        if not self.floor:
            return None if value is None else value * self.slower
        known = [formula(m, n, k) / self.slower, *([value] if value is not None else [])]
        known += [found * m / x for x in self.rows if x <= m and (found := self._value(x, n, k)) is not None]
        known += [found * k / x for x in self.inner if x <= k and (found := self._value(m, n, x)) is not None]
        return min(known) * self.slower

    def _value(self, m: float, n: float, k: float) -> float | None:
        return between(self.inner, k, lambda at: self.planes[at].value(m, n))


def _on_line(line: Line, x: float) -> float | None:
    return between(line[0], x, lambda at: line[1][bisect_left(line[0], at)])


def gemm_table(profiles: Iterable[GemmProfile], slower: float) -> GemmTable | None:
    """The products of one GPU type and precision; None where there are none."""
    found: dict[float, dict[float, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in profiles:
        found[float(row.k)][float(row.n)].append((float(row.m), row.seconds))
    planes = {k: Plane(_sorted(plane), {n: _line(points) for n, points in plane.items()}) for k, plane in found.items()}
    rows_at = _sorted(m for plane in found.values() for points in plane.values() for m, _ in points)
    return GemmTable(_sorted(planes), rows_at, planes, slower) if planes else None


def _line(points: list[tuple[float, float]]) -> Line:
    return tuple(x for x, _ in sorted(points)), tuple(y for _, y in sorted(points))


Kind = tuple[int, int, int | None]                         # head widths of queries and of values, window


@dataclass(frozen=True, slots=True)
class AttentionTable:
    """Fused attention by head widths and window (as measured), then sequence length, then sequences times heads: (forward, backward) of each."""

    lengths: dict[Kind, dict[float, tuple[Points, Points]]]
    slower: float = 1.0
    floor: bool = False

    def seconds(self, kind: Kind, seq_len: float, heads: float, formula: tuple[float, float]) -> tuple[float, float] | None:
        """(forward, backward) of `heads` heads over all sequences together; None outside. As a floor: bounds that fall per head as these grow."""
        found = [self._value(kind, seq_len, heads, way) for way in (0, 1)]
        if not self.floor:
            return None if found[0] is None or found[1] is None else (found[0] * self.slower, found[1] * self.slower)
        places = _sorted(x for pair in self.lengths.get(kind, {}).values() for x in pair[0].at if x <= heads)
        bounds = []
        for way in (0, 1):
            known = [formula[way] / self.slower, *([value] if (value := found[way]) is not None else [])]
            known += [at * heads / x for x in places if (at := self._value(kind, seq_len, x, way)) is not None]
            bounds.append(min(known) * self.slower)
        return bounds[0], bounds[1]

    def _value(self, kind: Kind, seq_len: float, heads: float, way: int) -> float | None:
        lengths = self.lengths.get(kind, {})

        def at_length(length: float) -> float | None:
            points = lengths[length][way]
            return points.value_at(heads, lambda x: x) if points.covers(heads) else None

        return between(_sorted(lengths), seq_len, at_length)


def attention_table(profiles: Iterable[AttentionProfile], slower: float) -> AttentionTable | None:
    """The attention cores of one GPU type; None where there are none. Of rows with as many sequences times heads the mean."""
    found: dict[Kind, dict[float, dict[float, list[AttentionProfile]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in profiles:
        kind = row.head_dim, row.v_head_dim or row.head_dim, row.window
        found[kind][float(row.seq_len)][float(row.sequences * row.heads)].append(row)
    return AttentionTable({kind: {length: (_points(by, "forward_s"), _points(by, "backward_s")) for length, by in lengths.items()}
                           for kind, lengths in found.items()}, slower) if found else None


def _points(by: dict[float, list[AttentionProfile]], name: str) -> Points:
    return Points(at=_sorted(by), value=tuple(sum(getattr(row, name) for row in by[x]) / len(by[x]) for x in sorted(by)))
