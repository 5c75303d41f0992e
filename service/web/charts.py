"""Geometry of the charts: what the templates draw as SVG. Pure numbers, no markup."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_TIMELINE_BARS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One part of a bar: position and width in percent of the bar's scale, its colour class, and what it says on hover."""

    x: float
    width: float
    colour: str
    label: str
    value: float


def stacked(parts: Sequence[tuple[str, str, float]], scale: float) -> tuple[Segment, ...]:
    """Segments of one bar from (label, colour class, value), in order, on a scale from 0 to `scale`; empty parts are left out."""
    at, made = 0.0, []
    for label, colour, value in parts:
        if value > 0 and scale > 0:
            width = 100 * value / scale
            made.append(Segment(x=round(at, 3), width=round(width, 3), colour=colour, label=label, value=value))
            at += width
    return tuple(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A mark on an axis: where (chart units), and its text."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GapChart:
    """Best plan and bound over time, in a box of `width` by `height` with the plot inside the margins."""

    width: int
    height: int
    left: int
    bottom: int
    incumbent: str  # SVG path data; empty when there is none yet
    bound: str
    area: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def gap_chart(history: Sequence[Mapping[str, Any]], width: int = 1000, height: int = 240) -> GapChart | None:
    """Step lines of incumbent and bound from progress records (elapsed_s, incumbent_s, bound_s). None before there is anything to draw."""
    left, top, right, bottom = 84, 12, 24, 32
    values = sorted(v for p in history for v in (p.get("incumbent_s"), p.get("bound_s")) if v is not None and v > 0)
    if not values:
        return None
    end = max(1.0, *(p["elapsed_s"] for p in history))
    last = [p["incumbent_s"] for p in history if p.get("incumbent_s")]
    low, high = values[0], values[-1]
    if last:  # an early bound far below says little: keep the region where the gap closes
        low, high = max(low, 0.5 * last[-1]), min(high, 1.6 * last[-1])
    pad = 0.08 * (high - low) or 0.05 * high
    low, high = max(0.0, low - pad), high + pad

    def x(t: float) -> float:
        return round(left + (width - left - right) * t / end, 1)

    def y(v: float) -> float:
        return round(top + (height - top - bottom) * (high - min(max(v, low), high)) / (high - low), 1)

    upper = _steps([(x(p["elapsed_s"]), y(p["incumbent_s"])) for p in history if p.get("incumbent_s")], x(end))
    lower = _steps([(x(p["elapsed_s"]), y(p["bound_s"])) for p in history if p.get("bound_s")], x(end))
    area = (
        "M" + " ".join(f"{a},{b}" for a, b in [*upper, *reversed([q for q in lower if upper and q[0] >= upper[0][0]] or lower)]) + "Z"
        if upper and lower
        else ""
    )
    return GapChart(
        width=width,
        height=height,
        left=left,
        bottom=height - bottom,
        incumbent=_path(upper),
        bound=_path(lower),
        area=area,
        x_ticks=tuple(Tick(at=x(end * i / 4), text=f"{end * i / 4:.3g} s") for i in range(5)),
        y_ticks=tuple(Tick(at=y(low + (high - low) * i / 4), text=f"{low + (high - low) * i / 4:.3g} s") for i in range(5)),
    )


def _steps(points: list[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    made: list[tuple[float, float]] = []
    for a, b in points:
        if made:
            made.append((a, made[-1][1]))
        made.append((a, b))
    return [*made, (end, made[-1][1])] if made else []


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{a},{b}" for a, b in points) if points else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One piece of work in the timeline."""

    x: float
    y: float
    width: float
    colour: str  # forward, backward, weight, other
    label: str
    text: str  # micro-batch number where it fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Rows of bars, one row per stage of the first pipeline."""

    width: int
    height: int
    row_height: int
    left: int
    bars: tuple[Bar, ...]
    rows: tuple[Tick, ...]
    ticks: tuple[Tick, ...]
    shown_s: float
    total_s: float


def timeline(trace: Mapping[str, Any], width: int = 1200) -> Timeline | None:
    """The pipeline of one replica from a Chrome trace. None when there are no events; cut to the first part when there are too many to draw."""
    events = [e for e in trace.get("traceEvents", ()) if e.get("ph") == "X"]
    first = min((e.get("pid", 0) for e in events), default=None)
    events = sorted((e for e in events if e.get("pid", 0) == first), key=lambda e: float(e["ts"]))
    if not events:
        return None
    rows = sorted({e.get("tid", 0) for e in events})
    total = max(e["ts"] + e["dur"] for e in events)
    events = events[:MAX_TIMELINE_BARS]
    shown = max(e["ts"] + e["dur"] for e in events)
    left, row, gap = 68, 26, 4
    scale = (width - left - 4) / shown

    def bar(e: dict[str, Any]) -> Bar:
        wide = max(e["dur"] * scale, 0.4)
        args = e.get("args") or {}
        micro = args.get("micro_batch")
        return Bar(
            x=round(left + e["ts"] * scale, 2),
            y=rows.index(e.get("tid", 0)) * (row + gap),
            width=round(wide, 2),
            colour=colour_of(e),
            label=f"{e.get('name', '')}: {e['ts'] / 1e3:.2f} ms, for {e['dur'] / 1e3:.2f} ms",
            text=str(micro) if micro is not None and wide > 16 else "",
        )

    height = len(rows) * (row + gap) + 22
    return Timeline(
        width=width,
        height=height,
        row_height=row,
        left=left,
        bars=tuple(map(bar, events)),
        shown_s=shown / 1e6,
        total_s=total / 1e6,
        rows=tuple(Tick(at=i * (row + gap) + row / 2, text=f"stage {r}") for i, r in enumerate(rows)),
        ticks=tuple(Tick(at=round(left + (width - left - 4) * i / 6, 1), text=f"{shown * i / 6e6:.3g} s") for i in range(7)),
    )


def colour_of(event: Mapping[str, Any]) -> str:
    """The colour class of a trace event, by its category or else the first letter of its name."""
    kind = (event.get("cat") or event.get("name") or "").lower()
    for start, colour in (("f", "forward"), ("b", "backward"), ("w", "weight")):
        if kind.startswith(start):
            return colour
    return "other"
