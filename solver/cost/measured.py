"""A problem's layer profiles as curves over sequences, and what they cover. How they replace formulas stands in `profiles.py`."""
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from solver.domain.model import LayerClass
from solver.domain.profiles import BLOCK, EMBEDDING, HEAD, LayerProfile, Profiles

Shape = Callable[[float], float]                           # the formula's value for so many sequences
Part = LayerClass | str                                    # a class of layers, or an end of the pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """One figure at measured numbers of sequences, ascending.

    Exact at each; between two neighbours on the line through them, so that it lies between both, and per sequence too; beyond the ends the nearest,
    changed as the formula changes, but per sequence never below the nearest for fewer sequences nor above it for more.
    """

    at: tuple[float, ...]
    value: tuple[float, ...]

    def covers(self, x: float) -> bool:
        return self.at[0] <= x <= self.at[-1]

    def value_at(self, x: float, shape: Shape) -> float:
        """The figure for x sequences."""
        i = bisect_left(self.at, x)
        if i < len(self.at) and self.at[i] == x:
            return self.value[i]
        if 0 < i < len(self.at):
            (x0, x1), (v0, v1) = self.at[i - 1:i + 1], self.value[i - 1:i + 1]
            return v0 + (v1 - v0) * (x - x0) / (x1 - x0)
        nearest = 0 if i == 0 else len(self.at) - 1
        per_sequence = shape(x) / x / (shape(self.at[nearest]) / self.at[nearest])
        return self.value[nearest] / self.at[nearest] * x * (max(1.0, per_sequence) if i == 0 else min(1.0, per_sequence))

    def least(self, x: float, shape: Shape, extrapolate: bool) -> float:
        """A lower bound on the figure that falls per sequence as x grows, whatever the measurements do: x times the least per sequence up to x."""
        known = [v / at for at, v in zip(self.at, self.value, strict=True) if at <= x]
        if extrapolate or self.covers(x):
            known.append(self.value_at(x, shape) / x)
        return x * min(known, default=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """All rows of one part on one GPU type at one tensor degree. What does not depend on the micro-batch is the largest of its rows."""

    tp: int
    forward: Points
    backward: Points
    weight_share: float | None                             # of the backward, for weights: mean over the rows that say
    activation: Points | None
    output: Points | None
    parameter_bytes: float | None
    update_s: float | None


def curve_of(rows: list[LayerProfile]) -> Curve:
    """The curve through rows that agree in part, GPU and tensor degree."""
    rows = sorted(rows, key=lambda r: r.micro_batch_size)
    shares = [r.weight_grad_s / r.backward_s for r in rows if r.weight_grad_s is not None]

    def points(name: str) -> Points | None:
        given = [(float(r.micro_batch_size), value) for r in rows if (value := getattr(r, name)) is not None]
        return Points(at=tuple(x for x, _ in given), value=tuple(v for _, v in given)) if given else None

    forward, backward = points("forward_s"), points("backward_s")
    assert forward is not None and backward is not None    # every row has both
    return Curve(tp=rows[0].tp, forward=forward, backward=backward, weight_share=sum(shares) / len(shares) if shares else None,
                 activation=points("activation_bytes"), output=points("output_bytes"),
                 parameter_bytes=max((r.parameter_bytes for r in rows if r.parameter_bytes is not None), default=None),
                 update_s=max((r.update_s for r in rows if r.update_s is not None), default=None))


@dataclass(frozen=True, slots=True)
class Measured:
    """Layer profiles by GPU type, tensor degree and part."""

    curves: dict[tuple[str, str | int], dict[int, Curve]]  # (GPU, layer key) -> tensor degree -> curve
    parts: tuple[Part, ...]                                # what must be covered: every class of layers, and each end that any row names
    extrapolate: bool

    def curve(self, gpu: str, tp: int, part: Part) -> Curve | None:
        """The most specific rows at this tensor degree: a layer's own, those of its class, those of any block."""
        for key in _keys(part):
            found = self.curves.get((gpu, key), {}).get(tp)
            if found is not None:
                return found
        return None

    def nearest(self, gpu: str, tp: int, part: Part) -> Curve | None:
        """The curve at the closest tensor degree by ratio, the smaller of two; None where the GPU has no rows of the part."""
        degrees = sorted({t for key in _keys(part) for t in self.curves.get((gpu, key), {})}, key=lambda t: (abs(math.log(t / tp)), t))
        return self.curve(gpu, degrees[0], part) if degrees else None

    def closest(self, gpu: str, tp: int, part: Part) -> Curve | None:
        """The curve to go by: measured there, or the nearest."""
        return self.curve(gpu, tp, part) or self.nearest(gpu, tp, part)

    def lacking(self, gpu: str, tp: int, sequences: float) -> Part | None:
        """The first part that has no measurement for this combination, nor two on both sides of it."""
        for part in self.parts:
            found = self.curve(gpu, tp, part)
            if found is None or not found.forward.covers(sequences):
                return part
        return None

    def name_of(self, part: Part) -> str:
        """A part as a user names it in a profile."""
        if isinstance(part, str):
            return part
        if part.measured_as is not None:
            return f"layer {part.measured_as}"
        return part.label if any(layer == part.label for _, layer in self.curves) else BLOCK

    def begins(self, gpu: str, tp: int, sequences: float, part: Part) -> bool:
        """Whether some measurement at this tensor degree has no more sequences: then larger micro-batches have a lower bound."""
        found = self.curve(gpu, tp, part)
        return found is not None and found.forward.at[0] <= sequences


def _keys(part: Part) -> tuple[str | int, ...]:
    if isinstance(part, str):
        return (part,)
    return (part.label, BLOCK) if part.measured_as is None else (part.measured_as, part.label, BLOCK)


def measured_of(profiles: Profiles | None, classes: tuple[LayerClass, ...]) -> Measured | None:
    """The curves of a problem's layer profiles; None where there are none."""
    if profiles is None or not profiles.layers:
        return None
    rows: dict[tuple[str, str | int, int], list[LayerProfile]] = defaultdict(list)
    for row in profiles.layers:
        rows[row.gpu, row.layer, row.tp].append(row)
    curves: dict[tuple[str, str | int], dict[int, Curve]] = defaultdict(dict)
    for (gpu, layer, tp), of in rows.items():
        curves[gpu, layer][tp] = curve_of(of)
    ends = tuple(name for name in (EMBEDDING, HEAD) if any(layer == name for _, layer in curves))
    return Measured(curves=dict(curves), parts=(*dict.fromkeys(classes), *ends), extrapolate=profiles.extrapolate)
