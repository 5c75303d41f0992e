"""Collectives over a hierarchy of links: alpha-beta times per level.

n ranks, S bytes, alpha seconds per hop, beta bytes per second. Levels run from the fastest link outward; a level's ranks each stand for a
whole block of the level below, on which the message has shrunk.
"""
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """`ranks` blocks joined by one kind of link."""

    ranks: float
    latency_s: float
    bandwidth_bytes_s: float
    network: bool = False                                  # between nodes, or between node groups


Path = tuple[Level, ...]


def ring_all_reduce_s(n: float, size_bytes: float, latency_s: float, bandwidth_bytes_s: float) -> float:
    """Ring all-reduce of S bytes on each of n ranks: 2 (n - 1) alpha + 2 (n - 1) / n * S / beta."""
    return 2.0 * (n - 1.0) * latency_s + 2.0 * (n - 1.0) / n * size_bytes / bandwidth_bytes_s


def tree_all_reduce_s(n: float, size_bytes: float, latency_s: float, bandwidth_bytes_s: float) -> float:
    """Double binary tree: 2 ceil(log2 n) alpha + 2 S / beta. Wins over the ring for small messages on many ranks."""
    return 2.0 * math.ceil(math.log2(n)) * latency_s + 2.0 * size_bytes / bandwidth_bytes_s if n > 1 else 0.0


def all_reduce_s(path: Path, size_bytes: float) -> float:
    """Hierarchical all-reduce: reduce-scatter inside, all-reduce across on what is left, all-gather inside; ring or tree per level, whichever is
    faster."""
    seconds, left = 0.0, size_bytes
    for level in path:
        if level.ranks > 1:
            arguments = (level.ranks, left, level.latency_s, level.bandwidth_bytes_s)
            seconds += min(ring_all_reduce_s(*arguments), tree_all_reduce_s(*arguments))
            left /= level.ranks
    return seconds


def all_gather_s(path: Path, size_bytes: float) -> float:
    """All-gather to S bytes on every rank, or reduce-scatter from S bytes: half an all-reduce."""
    return all_reduce_s(path, size_bytes) / 2.0


def all_to_all_s(path: Path, size_bytes: float, fan_out: int | None = None) -> float:
    """All-to-all of S bytes per rank: (n - 1) alpha + (n - 1) / n * S / beta, with every level's share of the traffic on its own links at once.

    Of a rank's bytes, (block - inside) / n travel over a level; the slowest level decides. With `fan_out` = k copies of each element, links between
    blocks carry one copy per distinct block: of B equally likely blocks k copies meet B (1 - (1 - 1 / B)^k).
    """
    ranks = math.prod(level.ranks for level in path)
    seconds, latency, inside = 0.0, 0.0, 1.0
    for depth, level in enumerate(path):
        block = inside * level.ranks
        share = (block - inside) / ranks
        if fan_out is not None and depth > 0:
            blocks = ranks / inside
            share *= blocks * (1.0 - (1.0 - 1.0 / blocks) ** fan_out) / fan_out
        seconds = max(seconds, size_bytes * share / level.bandwidth_bytes_s)
        latency += min(level.ranks - 1.0, 2.0 * math.ceil(math.log2(level.ranks))) * level.latency_s if level.ranks > 1 else 0.0
        inside = block
    return seconds + latency


def ring_pass_s(path: Path, size_bytes: float) -> float:
    """Every rank's S bytes passed once around the whole ring (ring attention): (n - 1) (alpha + S / beta) at the slowest link on the way."""
    ranks = math.prod(level.ranks for level in path)
    return max(((ranks - 1.0) * (level.latency_s + size_bytes / level.bandwidth_bytes_s) for level in path if level.ranks > 1), default=0.0)


def all_reduce_slope(path: Path) -> tuple[float, float]:
    """(constant seconds, seconds per byte) of a large all-reduce: affine in the bytes, as the search needs it. A reduce-scatter or an all-gather is
    half."""
    constant, slope, shrunk = 0.0, 0.0, 1.0
    for level in path:
        if level.ranks > 1:
            constant += 2.0 * min(level.ranks - 1.0, math.ceil(math.log2(level.ranks))) * level.latency_s
            slope += 2.0 * (level.ranks - 1.0) / level.ranks / shrunk / level.bandwidth_bytes_s
            shrunk *= level.ranks
    return constant, slope
