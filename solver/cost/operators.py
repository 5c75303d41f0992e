"""Times of single operators on one GPU: matrix product, attention core, elementwise bytes. Rooflines with fitted efficiency."""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from solver.catalog.curves import GemmCurve
from solver.cost.alike import everywhere, larger, where

TILE = 128                                                 # rows and columns of the output tile that one multiprocessor computes
QUERY_BLOCK = 128                                          # queries of one head that one multiprocessor takes at a time
KEY_BLOCK = 128                                            # keys that it takes at a time


class MeasuredGemms(Protocol):
    """Measured matrix products."""

    def seconds(self, m: float, n: float, k: float, formula: Callable[[float, float, float], float]) -> float | None:
        """Seconds of one product (m x k) by (k x n); None where it is not covered."""


class MeasuredAttention(Protocol):
    """Measured attention cores."""

    def seconds(self, kind: tuple[int, int, int | None], seq_len: float, heads: float, formula: tuple[float, float]) -> tuple[float, float] | None:
        """(forward, backward) by head widths and window, length, and heads over all sequences; None where that is not covered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How fast one GPU multiplies in one precision.

    flops_s: dense peak times the sustained share (FLOP/s); bandwidth_bytes_s: memory; element_bytes: of the two factors, output_bytes: of the
    product; k_scale: this peak over the one that `curve.short_k` was fitted at.
    """

    flops_s: float
    bandwidth_bytes_s: float
    curve: GemmCurve
    sms: int
    element_bytes: float
    output_bytes: float = 2.0
    k_scale: float = 1.0
    misaligned: float = 1.0
    measured: MeasuredGemms | None = None                  # the user's own, in place of the formula at the shapes that they cover


def gemm_s(rate: Rate, m: float, n: float, k: float, copies: float = 1.0) -> float:
    """Seconds of `copies` products (m x k) by (k x n) launched together; of one product the user's own measurement where there is one."""
    if rate.measured is not None and copies == 1.0 and m > 0 and n > 0 and k > 0:
        found = rate.measured.seconds(m, n, k, lambda rows, columns, inner: gemm_by_formula_s(rate, rows, columns, inner))
        if found is not None:
            return found
    return gemm_by_formula_s(rate, m, n, k, copies)


def gemm_by_formula_s(rate: Rate, m: float, n: float, k: float, copies: float = 1.0) -> float:
    """Seconds of `copies` products (m x k) by (k x n) launched together.

    max(2 m n k / (flops * e) * (1 + c * SM / tiles) * (1 + k0 / k) * align, bytes / (bandwidth * e_b)) + t0, tiles = (m / 128) (n / 128) over all
    copies. Written out, the first is 2 (m n + c SM 128^2 / copies) (k + k0) / (flops * e), so time grows in m, n and k. Waves are averaged over:
    single shapes miss by 5 to 10 % (median), by 15 to 25 % at worst (p90), more below m = 128. `align`: n or k no multiple of 128.
    """
    if everywhere(m * n * k * copies <= 0.0):
        return 0.0
    curve = rate.curve
    tiles = copies * (m / TILE) * (n / TILE)
    align = where((n % TILE > 0) | (k % TILE > 0), rate.misaligned, 1.0)
    losses = (1.0 + curve.wave * rate.sms / tiles) * (1.0 + curve.short_k * rate.k_scale / k) * align
    compute = copies * 2.0 * m * n * k / (rate.flops_s * curve.compute) * losses
    moved = copies * (rate.element_bytes * (m * k + k * n) + rate.output_bytes * m * n) / (rate.bandwidth_bytes_s * curve.bandwidth)
    return larger(compute, moved) + curve.fixed_s


def score_area(seq_len: float, window: float | None) -> float:
    """Query-key pairs of one causal sequence: s^2 / 2, or with a sliding window w < s: s w - w^2 / 2."""
    if window is None or window >= seq_len:
        return seq_len * seq_len / 2.0
    return seq_len * window - window * window / 2.0


def visited_area(seq_len: float, window: float | None) -> float:
    """Query-key pairs that a fused kernel computes: keys come in blocks, so a window's far edge is one block further."""
    return score_area(seq_len, None if window is None else window + KEY_BLOCK)


def attention_flops(batch: float, area: float, heads: float, qk_dim: float, v_dim: float) -> float:
    """FLOPs of the attention core forward: 2 (d_qk + d_v) per head and query-key pair. Backward of fused kernels has 2.5 times as many."""
    return 2.0 * batch * heads * area * (qk_dim + v_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRate:
    """How fast one GPU runs one generation of fused attention.

    flops_s: 16-bit peak; forward, backward: share of it that long sequences reach, the softmax counted as softmax_width more of head width;
    least_width: head width that a score costs at least, where the softmax runs beside the products; half_length: keys per query at which work per
    token equals work per score; waiting: query blocks that the longest block's time is worth, over all multiprocessors.
    """

    flops_s: float
    forward: float
    backward: float
    softmax_width: float
    least_width: float
    half_length: float
    waiting: float
    fixed_s: float


def fused_attention_s(rate: AttentionRate, pairs: float, widths: float, keys: float, blocks: float) -> tuple[float, float]:
    """Seconds (forward, backward) of a fused attention core on `pairs` query-key pairs, summed over heads and sequences.

    2 pairs max(d_qk + d_v + 2 c, 2 w) / (peak * e) * (1 + s_h / keys + waiting / blocks) + t0, apart for forward and backward (2.5 times the work).
    widths: d_qk + d_v; keys: mean pairs per query, doubled: s of a causal sequence; blocks: 128-query blocks over all heads and sequences. Every term
    grows in batch, heads, widths and length. The forward shape is fitted to isolated kernels (median 3 to 6 %, heads 64 to 256 wide); kernel
    releases of one generation differ by tens of percent.
    """
    if everywhere(pairs * widths * keys * blocks <= 0.0):
        return 0.0, 0.0
    per_pair = 2.0 * max(widths + 2.0 * rate.softmax_width, 2.0 * rate.least_width)
    work = pairs * per_pair / rate.flops_s * (1.0 + rate.half_length / keys + rate.waiting / blocks)
    return work / rate.forward + rate.fixed_s, 2.5 * work / rate.backward + rate.fixed_s


def elementwise_s(size_bytes: float, bandwidth_bytes_s: float) -> float:
    """Seconds of memory-bound work: bytes over effective bandwidth."""
    return size_bytes / bandwidth_bytes_s
