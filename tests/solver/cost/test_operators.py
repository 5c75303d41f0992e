"""Rooflines of single operators."""
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.catalog.curves import measured_curves
from solver.cost.operators import KEY_BLOCK, QUERY_BLOCK, AttentionRate, Rate, attention_flops, fused_attention_s, gemm_s, score_area, visited_area

RATE = Rate(flops_s=312e12, bandwidth_bytes_s=2039e9, curve=measured_curves()["a100"].gemm["half"], sms=108, element_bytes=2.0, misaligned=1.15)
CORE = AttentionRate(flops_s=312e12, forward=0.6, backward=0.4, softmax_width=0.0, least_width=0.0, half_length=1000.0, waiting=100.0,
                     fixed_s=0.0)


def test_large_product_runs_near_its_compute_share():
    m = n = k = 8192
    ideal = 2.0 * m * n * k / (312e12 * RATE.curve.compute)
    assert ideal < gemm_s(RATE, m, n, k) < 1.1 * ideal


def test_skinny_product_is_bound_by_memory():
    seconds = gemm_s(RATE, 1, 8192, 8192)
    assert seconds == pytest.approx(2 * 8192 * 8192 / (2039e9 * RATE.curve.bandwidth) + RATE.curve.fixed_s, rel=2e-3)


def test_misaligned_columns_cost_more():
    assert gemm_s(RATE, 4096, 4096 + 64, 4096) > 1.1 * gemm_s(RATE, 4096, 4096, 4096)


def test_shards_lose_efficiency():
    assert 8 * gemm_s(RATE, 2048, 12288 // 8, 12288) > gemm_s(RATE, 2048, 12288, 12288)


def test_grouped_product_launches_once():
    assert gemm_s(RATE, 64, 512, 512, copies=8) < 8 * gemm_s(RATE, 64, 512, 512)


def test_an_empty_product_takes_no_time():
    assert gemm_s(RATE, 0, 128, 128) == 0.0


def test_causal_area_and_window():
    assert score_area(1024, None) == 1024**2 / 2
    assert score_area(1024, 4096) == 1024**2 / 2
    assert score_area(1024, 256) == 1024 * 256 - 256**2 / 2


def test_attention_flops_of_a_causal_sequence():
    """4 b s^2 a d / 2."""
    assert attention_flops(2, score_area(4096, None), 32, 128, 128) == 4 * 2 * 4096**2 * 32 * 128 / 2


def test_attention_reaches_half_its_share_at_the_half_length():
    long, _ = fused_attention_s(CORE, 1e10, 256, keys=1e9, blocks=1e9)
    short, _ = fused_attention_s(CORE, 1e10, 256, keys=1000.0, blocks=1e9)
    assert short == pytest.approx(2 * long, rel=1e-4)


def test_attention_waits_for_its_longest_block():
    full, _ = fused_attention_s(CORE, 1e10, 256, keys=1e9, blocks=1e9)
    few, _ = fused_attention_s(CORE, 1e10, 256, keys=1e9, blocks=50.0)
    assert few == pytest.approx(3 * full, rel=1e-4)


def test_backward_has_two_and_a_half_times_the_operations():
    forward, backward = fused_attention_s(CORE, 1e10, 256, keys=4096.0, blocks=4096.0)
    assert backward == pytest.approx(2.5 * 0.6 / 0.4 * forward)


def test_a_score_costs_its_softmax_whatever_the_head_width():
    rate = replace(CORE, softmax_width=32.0, least_width=128.0)
    narrow, even, wide = (fused_attention_s(rate, 1e10, widths, keys=1e9, blocks=1e9)[0] for widths in (128, 192, 448))
    assert even == pytest.approx(narrow)                   # 2 * (64 + 32) and 2 * (96 + 32) both below or at the least width
    assert wide == pytest.approx(2 * narrow)


def test_a_window_is_one_key_block_wider_for_the_kernel():
    assert visited_area(4096, 512) == score_area(4096, 512 + KEY_BLOCK)
    assert visited_area(512, 480) == visited_area(512, None) == score_area(512, None)


SIZE = st.floats(1e-2, 1e6)
FACTOR = st.floats(1.0, 100.0)
CURVES = st.sampled_from([(curves, kind) for curves in measured_curves().values() for kind in curves.gemm])


@given(CURVES, SIZE, SIZE, SIZE, FACTOR, st.sampled_from(range(3)), st.floats(1.0, 64.0))
def test_a_larger_product_never_takes_less_time(of, m, n, k, factor, which, copies):
    """For every measured curve and positive real sizes; alignment apart, which is a property of the shape and not of the amount of work."""
    curves, kind = of
    rate = replace(RATE, curve=curves.gemm[kind], sms=curves.sms, misaligned=1.0)
    grown = [m, n, k]
    grown[which] *= factor
    assert gemm_s(rate, *grown, copies=copies) >= gemm_s(rate, m, n, k, copies=copies) * (1 - 1e-12)
    assert gemm_s(rate, m, n, k, copies=copies * factor) >= gemm_s(rate, m, n, k, copies=copies) * (1 - 1e-12)


@given(SIZE, SIZE, SIZE, st.integers(2, 16))
def test_splitting_a_product_never_gains(m, n, k, parts):
    assert parts * gemm_s(RATE, m, n / parts, k) * RATE.misaligned >= gemm_s(RATE, m, n, k) * (1 - 1e-12)


@given(st.sampled_from(list(measured_curves().values())), st.floats(1e-2, 64.0), st.integers(1, 128), st.integers(16, 1_000_000), st.integers(8, 256),
       st.one_of(st.none(), st.integers(1, 65_536)), FACTOR)
def test_more_attention_never_takes_less_time(curves, batch, heads, seq_len, width, window, factor):
    curve = curves.attention
    rate = AttentionRate(flops_s=1e15, forward=curve.forward, backward=0.5 * curve.forward, softmax_width=curve.softmax_width,
                         least_width=curve.least_width, half_length=curve.half_length, waiting=2 * curve.imbalance * curves.sms,
                         fixed_s=curve.fixed_s)

    def seconds(batch, heads, seq_len, width, window):
        visited = visited_area(seq_len, window)
        return fused_attention_s(rate, batch * heads * visited, 2 * width, 2 * visited / seq_len, batch * heads * seq_len / QUERY_BLOCK)

    base = seconds(batch, heads, seq_len, width, window)
    for more in (seconds(batch * factor, heads, seq_len, width, window), seconds(batch, heads * factor, seq_len, width, window),
                 seconds(batch, heads, seq_len * factor, width, window), seconds(batch, heads, seq_len, width * factor, window),
                 seconds(batch, heads, seq_len, width, None if window is None else window * factor)):
        assert all(b >= a * (1 - 1e-9) for a, b in zip(base, more, strict=True))
