"""Collectives over a hierarchy of links: times by kind, message size, group size and placement.

n ranks, S bytes, alpha seconds per hop, beta bytes per second as stated. Levels run from the fastest link outward; a level's ranks each stand for a
whole block of the level below. What a link achieves of its alpha and beta, per operation, is a `Curve` of the catalogue. Levels work at the same
time on parts of a large message, as NCCL's rings and trees do: latencies add up, of the rest the slowest level's is taken.
"""
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Concatenate, ParamSpec, cast

import numpy as np
from numpy.typing import NDArray

from solver.catalog.collectives import IDEAL, Curve, LinkClass
from solver.cost.alike import larger, root, smaller
from solver.cost.measured_collectives import Curves
from solver.domain.profiles import CollectiveOp

BUCKET_BYTES = float(128 << 20)                            # gradients and weights travel in buckets of about this size (Megatron-LM, FSDP layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """`ranks` blocks joined by one kind of link; bandwidth and latency as stated. `measured`: of the whole path whose outermost level this is."""

    ranks: float
    latency_s: float
    bandwidth_bytes_s: float
    network: bool = False                                  # between nodes, or between node groups
    link: LinkClass = IDEAL
    measured: Curves | None = field(default=None, compare=False)


Path = tuple[Level, ...]
Others = ParamSpec("Others")


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of many communicators in place of one: each distinct path, and the index of everyone's."""

    distinct: tuple[Path, ...]
    index: NDArray[np.intp]
    order: NDArray[np.intp]                                # that sorts `index`
    spans: tuple[slice, ...]                               # of each distinct path, in that order

    @classmethod
    def of(cls, distinct: tuple[Path, ...], index: NDArray[np.intp]) -> "Paths":
        """The paths that `index` picks among distinct ones."""
        ends = np.cumsum(np.bincount(index, minlength=len(distinct))).tolist()
        return cls(distinct, index, np.argsort(index, kind="stable"), tuple(map(slice, [0, *ends[:-1]], ends)))


def each_path(path: Path, change: Callable[[Path], Path]) -> Path:
    """A path changed, or each of many."""
    if isinstance(path, Paths):
        return cast(Path, replace(path, distinct=tuple(change(one) for one in path.distinct)))
    return change(path)


def over_each(function: Callable[Concatenate[Path, float, Others], float]) -> Callable[Concatenate[Path, float, Others], float]:
    """A function of a path and bytes that takes `Paths` and an array of bytes too."""

    @wraps(function)
    def over(path: Path, size_bytes: float, *others: Others.args, **named: Others.kwargs) -> float:
        if not isinstance(path, Paths):
            return function(path, size_bytes, *others, **named)
        sizes, sorted_s, found = np.broadcast_to(size_bytes, path.index.shape)[path.order], np.empty(path.index.shape), np.empty(path.index.shape)
        for one, span in zip(path.distinct, path.spans, strict=True):
            sorted_s[span] = function(one, cast(float, sizes[span]), *others, **named)
        found[path.order] = sorted_s
        return cast(float, found)

    return cast(Callable[Concatenate[Path, float, Others], float], over)


def crosses_network(path: Path) -> bool:
    """Whether a path leaves the node."""
    if isinstance(path, Paths):
        return cast(bool, np.array([crosses_network(one) for one in path.distinct])[path.index])
    return any(level.network for level in path)


def _measured_s(path: Path, operation: CollectiveOp, size_bytes: float, formula: Callable[[Path, float], float]) -> float:
    """Seconds of a message by the user's own measurements of the path, where there are any of the operation; else by formula."""
    curves = path[-1].measured if path else None
    sizes = curves.get(operation) if curves is not None else None
    if sizes is None or size_bytes <= 0.0:
        return formula(path, size_bytes)
    return sizes.seconds_at(size_bytes, lambda size: formula(path, size))


def ring_all_reduce_s(n: float, size_bytes: float, latency_s: float, bandwidth_bytes_s: float) -> float:
    """Ring all-reduce of S bytes on each of n ranks: 2 (n - 1) alpha + 2 (n - 1) / n * S / beta."""
    return 2.0 * (n - 1.0) * latency_s + 2.0 * (n - 1.0) / n * size_bytes / bandwidth_bytes_s


def tree_all_reduce_s(n: float, size_bytes: float, latency_s: float, bandwidth_bytes_s: float) -> float:
    """Double binary tree: 2 ceil(log2 n) alpha + 2 S / beta, S / beta between two. Wins over the ring for small messages on many ranks."""
    return 2.0 * math.ceil(math.log2(n)) * latency_s + (2.0 if n > 2 else 1.0) * size_bytes / bandwidth_bytes_s if n > 1 else 0.0


def _wire_s(curve: Curve, level: Level, size_bytes: float) -> float:
    """Seconds that `size_bytes` spend on a level's links, the filling of the pipeline included."""
    seconds = size_bytes / (level.bandwidth_bytes_s * curve.achieved(level.ranks))
    return seconds + 2.0 * root(curve.fill_s * seconds)


def _hops(ranks: float, rounds: float) -> float:
    """Steps of `rounds` passes around a ring, or of a tree where that has fewer: a step of a tree is 2.5 of a ring (NCCL's tuning model: 1.9)."""
    return rounds * min(ranks - 1.0, 2.5 * math.ceil(math.log2(ranks)))


@over_each
def all_reduce_s(path: Path, size_bytes: float) -> float:
    """All-reduce of S bytes on every rank."""
    return _measured_s(path, "all_reduce", size_bytes, _all_reduce_s)


def _all_reduce_s(path: Path, size_bytes: float) -> float:
    """All-reduce: a ring through all ranks or a tree over the blocks of the outermost level, whichever is faster; inside one switch also its own
    reduction.

    A ring of N ranks carries 2 (N - 1) / N * S over every link that it crosses, a tree as much or S between two nodes. Where every GPU of a block has
    its own link outward, all K of them share that. A switch that reduces moves (1 + 1 / n) S per rank.
    """
    ranks, hops, base, ring, tree = 1.0, 0.0, 0.0, 0.0, 0.0
    levels = [level for level in path if level.ranks > 1]
    for level in levels:
        curve, lanes = level.link.all_reduce, ranks if level.link.rails else 1.0
        ranks *= level.ranks
        base = max(base, curve.base_s)
        hops += _hops(level.ranks, 2.0) * curve.hop * level.latency_s
        around = 2.0 * (ranks - 1.0) / ranks
        ring = larger(ring, _wire_s(curve, level, around * size_bytes / lanes))
        across = 1.0 if level is levels[-1] and level.ranks == 2 and level.link.rails else around
        tree = larger(tree, _wire_s(curve, level, across * size_bytes / lanes))
    seconds = base + hops + smaller(ring, tree)
    return smaller(seconds, switch_all_reduce_s(levels[0], size_bytes)) if len(levels) == 1 else seconds


def switch_all_reduce_s(level: Level, size_bytes: float) -> float:
    """All-reduce inside a switch that reduces and multicasts (NVLS): every rank moves S in and S / n out, and back. Infinite where it cannot."""
    curve = level.link.switch_all_reduce
    if curve is None:
        return math.inf
    return curve.base_s + curve.hop * level.latency_s + _wire_s(curve, level, (1.0 + 1.0 / level.ranks) * size_bytes)


@over_each
def all_gather_s(path: Path, size_bytes: float) -> float:
    """All-gather to S bytes on every rank: a ring, (N - 1) / N * S over every link on the way."""
    return _measured_s(path, "all_gather", size_bytes, lambda over, size: _one_way_s(over, size, "all_gather"))


def reduce_scatter_s(path: Path, size_bytes: float) -> float:
    """Reduce-scatter from S bytes on every rank: a ring, (N - 1) / N * S over every link on the way."""
    return _measured_s(path, "reduce_scatter", size_bytes, lambda over, size: _one_way_s(over, size, "reduce_scatter"))


def _one_way_s(path: Path, size_bytes: float, operation: str) -> float:
    """Libraries gather and scatter in rings alone: the ring enters every block once and passes all its ranks, so steps grow with the ranks."""
    ranks, hops, base, wire = 1.0, 0.0, 0.0, 0.0
    blocks = math.prod(level.ranks for level in path)
    for level in path:
        if level.ranks > 1:
            curve: Curve = level.link.all_gather if operation == "all_gather" else level.link.reduce_scatter
            lanes = ranks if level.link.rails else 1.0
            ranks *= level.ranks
            base = max(base, curve.base_s)
            blocks /= level.ranks                          # of this level's size, around the whole ring
            hops += blocks * (level.ranks - 1.0) * curve.hop * level.latency_s
            wire = larger(wire, _wire_s(curve, level, (ranks - 1.0) / ranks * size_bytes / lanes))
    return base + hops + wire


@over_each
def scattered_all_reduce_s(path: Path, size_bytes: float) -> float:
    """Reduce-scatter and all-gather of S bytes."""
    return reduce_scatter_s(path, size_bytes) + all_gather_s(path, size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut:
    """Copies of every element in an all-to-all: to `copies` destinations, of `groups` groups of destinations in at most `kept`."""

    copies: int
    groups: int = 1
    kept: int = 1

    def met(self, blocks: float) -> float:
        """Distinct blocks that an element's copies meet, on average: of B equally likely ones k copies meet B (1 - (1 - 1 / B)^k).

        Of G groups g are kept: where they are no larger than blocks, g of them lie in B (1 - (1 - 1 / B)^g) blocks; else over g B / G of the blocks.
        """
        within = blocks * self.kept / self.groups if blocks >= self.groups else blocks * (1.0 - (1.0 - 1.0 / blocks) ** self.kept)
        within = max(1.0, within)
        return within * (1.0 - (1.0 - 1.0 / within) ** self.copies)


@over_each
def all_to_all_s(path: Path, size_bytes: float, fan_out: FanOut | None = None) -> float:
    """All-to-all of S bytes per rank; what was measured without `fan_out` is changed by it as the formula of a large message is."""
    if not path or path[-1].measured is None or "all_to_all" not in path[-1].measured:
        return _all_to_all_s(path, size_bytes, fan_out)
    by = 1.0 if fan_out is None else _all_to_all_s(path, BUCKET_BYTES, fan_out) / _all_to_all_s(path, BUCKET_BYTES)
    return _measured_s(path, "all_to_all", size_bytes, _all_to_all_s) * by


def _all_to_all_s(path: Path, size_bytes: float, fan_out: FanOut | None = None) -> float:
    """All-to-all of S bytes per rank: (n - 1) / n * S / beta, with every level's share of the traffic on its own links at once.

    Of a rank's bytes, (block - inside) / n travel over a level; the slowest level decides. With `fan_out` links between blocks carry one
    copy per block that an element's copies meet; inside their block all copies are forwarded, (inside - 1) / inside of S.
    """
    ranks = math.prod(level.ranks for level in path)
    wire, base, hops, inside = 0.0, 0.0, 0.0, 1.0
    for depth, level in enumerate(path):
        block = inside * level.ranks
        if level.ranks > 1:
            curve = level.link.all_to_all
            share = (block - inside) / ranks
            if fan_out is not None and depth > 0:
                share *= fan_out.met(ranks / inside) / fan_out.copies
            elif fan_out is not None:
                share = (block - 1.0) / block
            wire = larger(wire, _wire_s(curve, level, size_bytes * share))
            base = max(base, curve.base_s)
            hops += _hops(level.ranks, 1.0) * curve.hop * level.latency_s
        inside = block
    return base + hops + wire


def send_s(level: Level, size_bytes: float) -> float:
    """S bytes from one rank to another over one kind of link."""
    return _measured_s((level,), "send_recv", size_bytes, _send_s)


def _send_s(path: Path, size_bytes: float) -> float:
    level, = path
    curve = level.link.send
    seconds = size_bytes / (level.bandwidth_bytes_s * curve.achieved(2.0))
    return curve.base_s + curve.hop * level.latency_s + seconds + 2.0 * root(curve.fill_s * seconds)


@over_each
def ring_pass_s(path: Path, size_bytes: float) -> float:
    """Every rank's S bytes passed once around the whole ring (ring attention): n - 1 sends at the slowest link on the way."""
    ranks = math.prod(level.ranks for level in path)
    slowest = 0.0
    for level in path:
        if level.ranks > 1:
            slowest = larger(slowest, (ranks - 1.0) * _send_s((level,), size_bytes))
    return slowest


def all_reduce_slope(path: Path) -> tuple[float, float]:
    """(constant seconds, seconds per byte) of reduce-scatter and all-gather of large data: affine in the bytes, as the search needs it.

    The slope is that of buckets of `BUCKET_BYTES`, the pipeline's filling included. Either half is half; an all-reduce without sharded states is
    taken for the same, which is too much where a tree between two nodes or a switch would be faster. Measurements give their own lines around a
    bucket: of both halves, or of an all-reduce where only that is measured or takes less.
    """
    if all(level.ranks <= 1 for level in path):
        return 0.0, 0.0
    curves = path[-1].measured or {}
    halves = [_line(path, op, curves) for op in ("reduce_scatter", "all_gather")]
    lines = [(halves[0][0] + halves[1][0], halves[0][1] + halves[1][1])]
    if "all_reduce" in curves:
        whole = _line(path, "all_reduce", curves)
        lines = [*lines, whole] if "reduce_scatter" in curves and "all_gather" in curves else [whole]
    return min(lines, key=lambda line: line[0] + line[1] * BUCKET_BYTES)


_FORMULAS: dict[CollectiveOp, Callable[[Path, float], float]] = {
    "all_reduce": _all_reduce_s, "reduce_scatter": lambda path, size: _one_way_s(path, size, "reduce_scatter"),
    "all_gather": lambda path, size: _one_way_s(path, size, "all_gather")}


def _line(path: Path, operation: CollectiveOp, curves: Curves) -> tuple[float, float]:
    formula = _FORMULAS[operation]
    constant = formula(path, 0.0)
    line = constant, (formula(path, BUCKET_BYTES) - constant) / BUCKET_BYTES
    return curves[operation].line_at(BUCKET_BYTES, line) if operation in curves else line
