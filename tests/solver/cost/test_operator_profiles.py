"""Operator profiles in the cost model: exact at measured shapes, monotone between, formulas beyond with a note, bounds that hold."""
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.cost.layer import attention_core, attention_gemms, dense_ffn_gemms, layer_work
from solver.cost.measured_operators import attention_table, gemm_table
from solver.cost.operators import gemm_by_formula_s, gemm_s
from solver.cost.price import price
from solver.cost.setting import setting
from solver.cost.share import Share
from solver.cost.units import layer_costs, unit_costs
from solver.domain.operators import AttentionProfile, GemmProfile, MemoryProfile
from solver.domain.problem import Problem
from solver.domain.profiles import Profiles
from tests.solver.cost.problems import SMALL, layout, node_group, problem, problems, unit, units

A100 = "A100-SXM4-80GB"


def gemm(m: int, n: int, k: int, seconds: float, **changes: Any) -> GemmProfile:
    return GemmProfile(**{"gpu": A100, "precision": "bf16", "m": m, "n": n, "k": k, "seconds": seconds, **changes})


def attention(sequences: int = 1, seq_len: int = 512, forward_s: float = 1e-3, **changes: Any) -> AttentionProfile:
    return AttentionProfile(**{"gpu": A100, "sequences": sequences, "seq_len": seq_len, "heads": 8, "head_dim": 64, "forward_s": forward_s,
                               "backward_s": 2.5 * forward_s, **changes})


def measured(*rows: GemmProfile | AttentionProfile | MemoryProfile, of: Problem | None = None) -> Problem:
    by = {cls: tuple(r for r in rows if isinstance(r, cls)) for cls in (GemmProfile, AttentionProfile, MemoryProfile)}
    return replace(of or problem(), profiles=Profiles(gemms=by[GemmProfile], attention=by[AttentionProfile], memory=by[MemoryProfile]))  # type: ignore[arg-type]


GRID = [gemm(m, n, k, 1e-6 * m**0.9 * n**0.8 * k**0.7 / 1e3) for m in (128, 512, 4096) for n in (256, 1024) for k in (256, 512, 2048)]


def by_law(m: float, n: float, k: float) -> float:
    return 1e-6 * m**0.9 * n**0.8 * k**0.7 / 1e3


@settings(max_examples=200)
@given(m=st.integers(128, 4096), n=st.integers(256, 1024), k=st.integers(256, 2048))
def test_products_between_measured_shapes_lie_on_straight_lines_in_logarithms(m, n, k):
    rate = setting(measured(*GRID)).machines["g"].linear
    assert gemm_s(rate, m, n, k) == pytest.approx(by_law(m, n, k), rel=1e-9)
    assert gemm_s(rate, 512, 1024, 2048) == next(r.seconds for r in GRID if (r.m, r.n, r.k) == (512, 1024, 2048))


@settings(max_examples=200)
@given(seconds=st.lists(st.floats(1e-6, 1e-2), min_size=8, max_size=8), at=st.tuples(*[st.floats(0.0, 1.0)] * 3),
       to=st.tuples(*[st.floats(0.0, 1.0)] * 3))
def test_products_grow_where_the_measurements_grow(seconds, at, to):
    corners = [(m, n, k) for m in (128, 512) for n in (256, 1024) for k in (64, 512)]
    ordered = sorted(seconds)
    rows = [gemm(*corner, ordered[i]) for i, corner in enumerate(sorted(corners))]        # grows along m alone for sure: make it grow along all
    rows = [gemm(r.m, r.n, r.k, max(o.seconds for o in rows if o.m <= r.m and o.n <= r.n and o.k <= r.k)) for r in rows]
    table = gemm_table(rows, 1.0)
    assert table is not None
    low, high = ([a + share * (b - a) for (a, b), share in zip(((128, 512), (256, 1024), (64, 512)), shares, strict=True)]
                 for shares in ([min(x, y) for x, y in zip(at, to, strict=True)], [max(x, y) for x, y in zip(at, to, strict=True)]))
    less, more = (table.seconds(*shape, gemm_never) for shape in (low, high))
    assert less is not None and more is not None
    assert less <= more * (1 + 1e-9)
    assert min(r.seconds for r in rows) * (1 - 1e-9) <= less and more <= max(r.seconds for r in rows) * (1 + 1e-9)


def gemm_never(m: float, n: float, k: float) -> float:
    raise AssertionError("the formula was asked inside the data")


@pytest.mark.parametrize("shape", [(64, 256, 256), (8192, 256, 256), (512, 2048, 512), (512, 512, 64)])
def test_beyond_the_measured_shapes_the_formula_stands(shape):
    rate = setting(measured(*GRID)).machines["g"].linear
    assert gemm_s(rate, *shape) == gemm_by_formula_s(rate, *shape)


def test_rows_of_other_precisions_and_gpus_change_nothing():
    rows = [replace(r, precision="fp8") for r in GRID] + [replace(r, gpu="T4") for r in GRID]
    assert unit_costs(measured(*rows), unit()).layers == unit_costs(problem(), unit()).layers


def test_an_incomplete_cell_is_not_covered():
    table = gemm_table([r for r in GRID if (r.n, r.k) != (1024, 2048)], 1.0)
    assert table is not None
    assert table.seconds(512, 512, 1000, by_law) is None               # one of the four lines around it is missing
    assert table.seconds(512, 256, 1000, by_law) is not None and table.seconds(512, 512, 300, by_law) is not None


def products(of: Problem, b: float = 1.0) -> list[tuple[float, float, float]]:
    share = Share(sequences=b, seq_len=512, tp=1, cp=1, ep=1, etp=1, sequence_parallel=False, kernel="flash_2", eager_norm=False, framework=None)
    cls = setting(of).classes[0]
    return [*attention_gemms(of.model, share), *dense_ffn_gemms(of.model, cls, share)]


def test_a_layer_takes_the_sum_of_its_measured_products():
    shapes = [tuple(int(x) for x in shape) for shape in products(problem())]
    every = {s for m, n, k in shapes for s in ((m, n, k), (m, k, n), (k, n, m))}
    of = measured(*(gemm(*shape, 1e-2) for shape in every))
    part = next(iter(unit_costs(of, unit()).layers.values()))
    assert part.weight_gradient_s == pytest.approx(len(shapes) * 1e-2)
    assert part.forward_s > len(shapes) * 1e-2 and part.backward_s > 2 * len(shapes) * 1e-2
    note = price(of, layout(micro_batches=32)).confidence
    assert note.basis == "analytic" and len(note.outside_data) == 1 and "products on A100-SXM4-80GB" in note.outside_data[0]     # those of the head


def test_the_speed_of_a_node_group_divides_its_gpus_figures():
    slow = replace(problem(), cluster=replace(problem().cluster, node_groups=(node_group(speed_factor=0.5),)))
    fast, half = (setting(measured(*GRID, of=p)).machines["g"].linear for p in (problem(), slow))
    assert gemm_s(half, 512, 256, 256) == pytest.approx(2 * gemm_s(fast, 512, 256, 256))


def core(of: Problem, sequences: float = 1.0, seq_len: int = 512, cp: int = 1) -> tuple[float, float]:
    share = Share(sequences=sequences, seq_len=seq_len, tp=1, cp=cp, ep=1, etp=1, sequence_parallel=False, kernel="flash_2", eager_norm=False,
                  framework=None)
    shared = setting(of)
    return attention_core(shared, shared.machines["g"], shared.classes[0], share)


def test_attention_is_exact_linear_in_heads_and_log_linear_in_length():
    of = measured(attention(1, 512, 1e-3), attention(4, 512, 3e-3), attention(1, 2048, 8e-3), attention(4, 2048, 30e-3))
    assert core(of) == (1e-3, 2.5e-3)
    assert core(of, 2.0)[0] == pytest.approx(1e-3 + 2e-3 / 3)
    assert core(of, 1.0, 1024)[0] == pytest.approx((1e-3 * 8e-3) ** 0.5)
    assert core(of, 4.0, cp=4) == (1e-3, 2.5e-3)           # four ranks on four sequences: the work of one each
    for outside in ((8.0, 512), (1.0, 4096), (0.5, 512)):
        assert core(of, *outside) == core(problem(), *outside)


def test_windows_and_head_widths_are_matched_exactly():
    rows = attention(window=64), attention(head_dim=128)
    assert core(measured(*rows)) == core(problem())
    table = attention_table(rows, 1.0)
    assert table is not None and table.seconds((64, 64, 64), 512, 8, (1.0, 1.0)) == (1e-3, 2.5e-3)


def test_memory_bound_work_follows_the_largest_measured_kernel():
    plain = setting(problem()).machines["g"]
    fast, faster = (setting(measured(MemoryProfile(gpu=A100, bytes=1e6, seconds=1.0), MemoryProfile(gpu=A100, bytes=1e9, seconds=s))).machines["g"]
                    for s in (1e-3, 5e-4))
    assert faster.elementwise_bytes_s == pytest.approx(2 * fast.elementwise_bytes_s)
    assert 0.3 < fast.elementwise_bytes_s / plain.elementwise_bytes_s < 1.0            # 1000 of 2039 GB/s


@settings(max_examples=60)
@given(data=st.data(), times=st.sampled_from([2, 3, 4]), b=st.sampled_from([1, 2]))
def test_bounds_of_larger_micro_batches_hold_for_smaller_ones_whatever_was_measured(data, times, b):
    """Products and attention measured with noise of a factor of a hundred, so that larger micro-batches may be slower per sequence; all far above the
    launch floor."""
    shapes = [tuple(int(x) for x in s) for size in (1, 2, 4, 8) for m, n, k in products(problem(), size) for s in ((m, n, k), (m, k, n), (k, n, m))]
    rows = [gemm(*s, data.draw(st.sampled_from([1e-2, 1e-1, 1.0]))) for s in dict.fromkeys(shapes) if data.draw(st.integers(0, 3))]
    cores = [attention(size, forward_s=data.draw(st.sampled_from([1e-2, 1e-1, 1.0]))) for size in (1, 2, 8)]
    of = measured(*rows, *cores)
    exact, large = unit_costs(of, unit(micro_batch_size=b)), layer_costs(of, unit(micro_batch_size=b * times), least=True)
    for cls, part in exact.layers.items():
        bound = large.layers[cls]
        assert (bound.forward_s + bound.backward_s) / times <= (part.forward_s + part.backward_s) * (1 + 1e-9)
        same = layer_costs(of, unit(micro_batch_size=b), least=True).layers[cls]
        assert same.forward_s + same.backward_s <= (part.forward_s + part.backward_s) * (1 + 1e-9)


@settings(max_examples=30)
@given(data=st.data(), given_problem=problems())
def test_no_rows_change_nothing(data, given_problem):
    spec = data.draw(units(given_problem))
    assert unit_costs(replace(given_problem, profiles=Profiles()), spec) == unit_costs(given_problem, spec)


def test_the_work_of_a_small_layer_is_priced_by_formula_where_nothing_covers_it():
    of = measured(*GRID, of=problem(replace(SMALL, hidden_size=8192, num_attention_heads=64)))
    shared, plain = setting(of), setting(replace(of, profiles=None))
    share = Share(sequences=64.0, seq_len=512, tp=1, cp=1, ep=1, etp=1, sequence_parallel=False, kernel="flash_2", eager_norm=False, framework=None)
    assert layer_work(shared, shared.machines["g"], shared.classes[0], share) == layer_work(plain, plain.machines["g"], plain.classes[0], share)
