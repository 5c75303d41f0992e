"""Times of single operators on one GPU: matrix product, attention core, elementwise bytes. Rooflines with fitted efficiency."""
from dataclasses import dataclass

from solver.catalog.efficiency import AttentionCurve, GemmCurve

TILE = 128                                                 # rows and columns of the output tile that one multiprocessor computes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How fast one GPU multiplies in one precision.

    flops_s: dense peak times the sustained share (FLOP/s); bandwidth_bytes_s: memory; k_scale: this peak over the one that `curve.short_k` was fitted
    at.
    """

    flops_s: float
    bandwidth_bytes_s: float
    curve: GemmCurve
    sms: int
    element_bytes: float
    k_scale: float = 1.0
    misaligned: float = 1.0


def gemm_s(rate: Rate, m: float, n: float, k: float, copies: float = 1.0) -> float:
    """Seconds of `copies` products (m x k) by (k x n) launched together.

    max(2 m n k / (flops * e) * (1 + c * SM / tiles) * (1 + k0 / k) * align, bytes / (bandwidth * e_b)) + t0, tiles = (m / 128) (n / 128) over all
    copies. Fitted to isolated GEMMs with m >= 512; below that, and for fp8, single shapes miss by 25 % and more. `align`: n or k no multiple of 128.
    """
    if m <= 0 or n <= 0 or k <= 0 or copies <= 0:
        return 0.0
    curve = rate.curve
    tiles = copies * (m / TILE) * (n / TILE)
    align = rate.misaligned if n % TILE or k % TILE else 1.0
    losses = (1.0 + curve.wave * rate.sms / tiles) * (1.0 + curve.short_k * rate.k_scale / k) * align
    compute = copies * 2.0 * m * n * k / (rate.flops_s * curve.compute) * losses
    moved = copies * rate.element_bytes * (m * k + k * n + m * n) / (rate.bandwidth_bytes_s * curve.bandwidth)
    return max(compute, moved) + curve.fixed_s


def score_area(seq_len: float, window: float | None) -> float:
    """Query-key pairs of one causal sequence: s^2 / 2, or with a sliding window w < s: s w - w^2 / 2."""
    if window is None or window >= seq_len:
        return seq_len * seq_len / 2.0
    return seq_len * window - window * window / 2.0


def attention_flops(batch: float, area: float, heads: float, qk_dim: float, v_dim: float) -> float:
    """FLOPs of the attention core forward: 2 (d_qk + d_v) per head and query-key pair. Backward of fused kernels has 2.5 times as many."""
    return 2.0 * batch * heads * area * (qk_dim + v_dim)


def fused_attention_s(peak_flops_s: float, curve: AttentionCurve, flops: float, seq_len: float) -> tuple[float, float]:
    """Seconds (forward, backward) of a fused attention core of `flops` forward FLOPs.

    Efficiency e_inf * s / (s + s_h), apart for forward and backward (2.5 times the FLOPs). `peak_flops_s` is the 16-bit peak without the sustained
    share. Wrong by tens of percent between kernel releases of one generation.
    """
    share = seq_len / (seq_len + curve.half_length)
    return flops / (peak_flops_s * curve.forward * share), 2.5 * flops / (peak_flops_s * curve.backward * share)


def elementwise_s(size_bytes: float, bandwidth_bytes_s: float) -> float:
    """Seconds of memory-bound work: bytes over effective bandwidth."""
    return size_bytes / bandwidth_bytes_s
