"""Layer profiles: exact at measured points, monotone between, excluded beyond with the nearest measurement, never beyond unflagged."""
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.cost.measured import Points
from solver.cost.price import price
from solver.cost.units import edge_seconds, layer_costs, unit_costs
from solver.domain.model import MoE
from solver.domain.problem import Problem
from solver.domain.profiles import LayerProfile, Profiles
from solver.errors import InputError
from tests.solver.cost.problems import SMALL, layout, node_group, problem, problems, unit, units

A100 = "A100-SXM4-80GB"
MOE = replace(SMALL, moe=MoE(num_experts=8, top_k=2, expert_ffn_hidden_size=512))


def row(b: int = 1, layer: str | int = "block", tp: int = 1, gpu: str = A100, **figures: float) -> LayerProfile:
    return LayerProfile(**{"gpu": gpu, "tp": tp, "micro_batch_size": b, "layer": layer, "forward_s": 1e-3 * b, "backward_s": 2.5e-3 * b, **figures})


def measured(*rows: LayerProfile, extrapolate: bool = False, of: Problem | None = None) -> Problem:
    return replace(of or problem(), profiles=Profiles(layers=rows, extrapolate=extrapolate))


def layer_of(of: Problem, **changes: object):  # type: ignore[no-untyped-def]
    costs = unit_costs(of, unit(**changes))
    return next(iter(costs.layers.values()))


def test_a_measured_layer_takes_what_was_measured():
    part = layer_of(measured(row(forward_s=0.0021, backward_s=0.0043, weight_grad_s=0.0017)))
    assert (part.forward_s, part.backward_s) == pytest.approx((0.0021, 0.0043), rel=1e-15)
    assert part.weight_gradient_s == pytest.approx(0.0017, rel=1e-15)
    assert sum((part.parts.compute_s, part.parts.tensor_comm_s)) == pytest.approx(0.0064, rel=1e-14)


def test_measured_bytes_stand_for_counted_ones():
    of = measured(row(parameter_bytes=2e7, activation_bytes=7e7, output_bytes=4e6))
    part = layer_of(of)
    assert part.weights_bytes == pytest.approx(2e7, rel=1e-14)
    assert part.gradients_bytes == pytest.approx(4e7, rel=1e-14)           # fp32 against 16-bit weights
    assert part.activation_bytes == pytest.approx(7e7, rel=1e-14)
    assert layer_of(of, recompute="full").activation_bytes == 4e6          # what full recompute keeps is the layer's input
    other = measured(row(parameter_bytes=2e7, activation_bytes=7e7, output_bytes=8e6))
    edge, wider = (edge_seconds(p, unit(), unit(), False, 1) for p in (of, other))
    assert wider > edge > edge_seconds(problem(), unit(), unit(), False, 1)


def test_a_measured_update_is_split_over_the_ranks_that_share_it():
    whole, halves = (unit_costs(measured(row(update_s=4e-3)), unit(replicas=n)) for n in (1, 2))
    formula = [unit_costs(measured(row()), unit(replicas=n)) for n in (1, 2)]
    one, half = (next(iter(c.sync[0].per_layer_s.values())) for c in (whole, halves))
    base = [next(iter(c.sync[0].per_layer_s.values())) for c in formula]
    assert one == pytest.approx(4e-3, rel=1e-14)
    assert half - base[1] == pytest.approx(2e-3 - base[0] / 2, rel=1e-9)   # what is left of both is the gradient traffic


def test_tensor_traffic_is_inside_what_was_measured():
    part = layer_of(measured(row(tp=4)), tp=4)
    assert part.forward_s + part.backward_s == pytest.approx(3.5e-3, rel=1e-14)
    assert part.parts.tensor_comm_s > 0.0


def test_sequence_parallelism_and_context_ranks_share_a_measurement():
    of = measured(row(1), row(2), row(4, tp=4), row(8, tp=4))
    assert layer_of(of, tp=4, micro_batch_size=4).forward_s == layer_of(of, tp=4, micro_batch_size=4, sequence_parallel=True).forward_s
    half = layer_of(of, micro_batch_size=2, cp=2)                          # two ranks on two sequences: the work of one each, and the ring
    assert half.forward_s - half.parts.context_comm_s <= 1e-3 * (1 + 1e-12) <= half.forward_s * (1 + 1e-12)


def test_full_recompute_repeats_the_measured_forward():
    part = layer_of(measured(row()), recompute="full")
    assert part.backward_s == pytest.approx(1e-3 + 2.5e-3, rel=1e-14)
    assert part.parts.recompute_s == pytest.approx(1e-3, rel=1e-14)


def test_a_slower_node_group_takes_the_measured_time_longer():
    of = replace(problem(), cluster=replace(problem().cluster, node_groups=(node_group(speed_factor=0.5),)))
    assert layer_of(measured(row(), of=of)).forward_s == pytest.approx(2e-3, rel=1e-14)


def test_the_most_specific_rows_stand_for_a_layer():
    of = measured(row(), row(layer="full_attention", forward_s=2e-3), row(layer=3, forward_s=3e-3))
    times = sorted(p.forward_s for p in unit_costs(of, unit()).layers.values())
    assert times == pytest.approx([2e-3, 3e-3], rel=1e-14)


def test_layers_with_equal_rows_are_one_class():
    of = measured(row(), row(layer=1, forward_s=2e-3), row(layer=2, forward_s=2e-3))
    assert len(unit_costs(of, unit()).layers) == 2


def test_ends_of_the_pipeline_are_measured_like_layers():
    of = measured(row(), row(layer="embedding", forward_s=5e-4), row(layer="head", forward_s=6e-3, backward_s=1e-2, activation_bytes=9e8))
    costs = unit_costs(of, unit())
    assert (costs.embedding.forward_s, costs.head.forward_s, costs.head.backward_s) == pytest.approx((5e-4, 6e-3, 1e-2), rel=1e-14)
    assert costs.logits_bytes + costs.head.activation_bytes == pytest.approx(9e8, rel=1e-14)


def test_experts_split_over_ranks_hold_their_share_of_measured_weights():
    of = measured(row(parameter_bytes=4e7), of=problem(MOE))
    plain = problem(MOE)
    for ep in (1, 2, 4):
        held, counted = (layer_of(p, ep=ep, replicas=4).weights_bytes for p in (of, plain))
        assert held / counted == pytest.approx(4e7 / layer_of(plain).weights_bytes, rel=1e-12)


# ---- interpolation


def test_measured_points_are_exact_and_between_them_time_is_linear():
    points = Points(at=(1.0, 2.0, 8.0), value=(3.0, 4.0, 10.0))
    assert [points.value_at(x, lambda x: x) for x in (1.0, 2.0, 8.0, 5.0)] == [3.0, 4.0, 10.0, 7.0]


@settings(max_examples=200)
@given(steps=st.lists(st.tuples(st.integers(1, 5), st.floats(1e-3, 10.0)), min_size=2, max_size=6), share=st.floats(0.0, 1.0), at=st.integers(0, 4))
def test_between_two_measurements_neither_total_nor_time_per_sequence_leaves_them(steps, share, at):
    sizes, values, x = [], [], 0
    for step, value in steps:
        x += step
        sizes.append(float(x))
        values.append(value)
    i = min(at, len(sizes) - 2)
    x = sizes[i] + share * (sizes[i + 1] - sizes[i])
    found = Points(at=tuple(sizes), value=tuple(values)).value_at(x, lambda x: x)
    for of, low, high in ((found, values[i], values[i + 1]), (found / x, values[i] / sizes[i], values[i + 1] / sizes[i + 1])):
        assert min(low, high) * (1 - 1e-12) <= of <= max(low, high) * (1 + 1e-12)


@given(values=st.lists(st.floats(1e-3, 10.0), min_size=2, max_size=5), small=st.integers(1, 12), times=st.integers(1, 6), extrapolate=st.booleans())
def test_least_times_fall_per_sequence_and_never_exceed_the_figure(values, small, times, extrapolate):
    points = Points(at=tuple(float(2 * i + 2) for i in range(len(values))), value=tuple(values))

    def shape(x: float) -> float:
        return 1.0 + x

    x, larger = float(small), float(small * times)
    if not (extrapolate or points.at[0] <= x):
        assert math.isinf(points.least(x, shape, extrapolate))
        return
    if extrapolate or points.covers(x):
        assert points.least(x, shape, extrapolate) <= points.value_at(x, shape) * (1 + 1e-12)
        assert points.least(larger, shape, extrapolate) / larger <= points.value_at(x, shape) / x * (1 + 1e-12)
    assert points.least(larger, shape, extrapolate) / larger <= points.least(x, shape, extrapolate) / x * (1 + 1e-12)


@settings(max_examples=40)
@given(data=st.data(), given_problem=problems(), times=st.sampled_from([2, 3, 4]))
def test_bounds_of_larger_micro_batches_hold_for_smaller_ones_whatever_was_measured(data, given_problem, times):
    """What families of micro-batches are pruned by, on measurements that rise per sequence, split experts and other degrees included."""
    spec = data.draw(units(given_problem))
    gpu = given_problem.cluster.node_groups[0].device.name
    rows = tuple(row(b, tp=tp, gpu=gpu, forward_s=data.draw(st.floats(1e-4, 1e-2)), backward_s=data.draw(st.floats(1e-4, 1e-2)))
                 for tp in (spec.tp, 2 * spec.tp) for b in (2, 3, 8) if tp == spec.tp or data.draw(st.booleans()))
    of = measured(*rows, extrapolate=True, of=given_problem)
    exact, large = unit_costs(of, spec), layer_costs(of, replace(spec, micro_batch_size=spec.micro_batch_size * times), least=True)
    for cls, part in exact.layers.items():
        bound = large.layers[cls]
        assert (bound.forward_s + bound.backward_s) / times <= (part.forward_s + part.backward_s) * (1 + 1e-9)


# ---- what is not covered


@pytest.mark.parametrize(("stage", "b", "words"), [
    ({}, 16, "tp 1 for 16 sequences"), ({"tp": 2}, 2, "tp 2 for 2 sequences"), ({"cp": 2}, 1, "tp 1 for 0.5 sequences"),
])
def test_what_profiles_miss_is_excluded_with_the_nearest_measurement(stage, b, words):
    found = price(measured(row(1), row(2), row(8)), layout(stage=stage, micro_batch_size=b, micro_batches=32 // b))
    reason, = (r for r in found.reasons if r.code == "profile.missing")
    assert not found.feasible and words in reason.message and "tp 1 with 1 to 8 sequences" in reason.message
    assert "1 to 8 sequences per data rank" in (reason.fix or "") and "extrapolate" in (reason.fix or "")
    assert found.confidence.basis == "analytic"


def test_a_gpu_that_nobody_measured_is_excluded_by_name():
    found = price(measured(row(gpu="H100-SXM5-80GB")), layout(micro_batches=32))
    reason, = (r for r in found.reasons if r.code == "profile.missing")
    assert A100 in reason.message and "measured are H100-SXM5-80GB" in reason.message


def test_width_inside_a_replica_is_not_what_a_data_rank_takes():
    of = measured(row(2), row(4))
    assert price(of, layout(stage={"dp": 2}, micro_batch_size=4, micro_batches=8)).feasible
    assert not price(of, layout(stage={"dp": 4}, micro_batch_size=4, micro_batches=8)).feasible


def test_an_end_that_is_measured_anywhere_must_be_everywhere():
    of = measured(row(1), row(8), row(1, layer="head"))
    found = price(of, layout(micro_batch_size=8, micro_batches=4))
    assert [r.code for r in found.reasons] == ["profile.missing"] and "no head on" in found.reasons[0].message


@pytest.mark.parametrize(("stage", "b"), [({}, 16), ({"tp": 2}, 2), ({"cp": 2}, 1)])
def test_with_extrapolate_the_answer_says_that_it_goes_beyond_the_data(stage, b):
    of = measured(row(1), row(2), row(8), extrapolate=True)
    found = price(of, layout(stage=stage, micro_batch_size=b, micro_batches=32 // b))
    assert found.feasible and found.confidence.basis == "analytic"
    assert len(found.confidence.outside_data) == 1 and "carried over from tp 1" in found.confidence.outside_data[0]
    inside = price(of, layout(micro_batch_size=4, micro_batches=8))
    assert inside.confidence.basis == "profile" and inside.confidence.outside_data == ()


def test_carried_over_times_keep_how_far_the_measured_gpu_is_from_the_formulas():
    of = problem(replace(SMALL, hidden_size=4096, ffn_hidden_size=16_384, num_attention_heads=32), seq_len=4096)
    slow = measured(row(1, forward_s=0.1, backward_s=0.2), row(2, forward_s=0.2, backward_s=0.4), extrapolate=True, of=of)
    assert 0.05 < layer_of(slow, tp=2).forward_s < 0.07
    assert layer_of(slow, micro_batch_size=16).forward_s == pytest.approx(1.6, rel=0.02)


def test_the_expected_error_lies_between_measurements_and_formulas():
    of = problem()
    formulas = price(of, layout(micro_batches=32)).confidence.expected_error
    layers = price(measured(row()), layout(micro_batches=32)).confidence
    every = price(measured(row(), row(layer="head", forward_s=1e-3), row(layer="embedding")), layout(micro_batches=32)).confidence
    assert 0.05 <= every.expected_error < layers.expected_error < formulas
    assert layers.basis == every.basis == "profile"


def test_a_weight_gradient_longer_than_the_backward_is_refused():
    with pytest.raises(InputError, match="/weight_grad_s"):
        row(backward_s=1e-3, weight_grad_s=2e-3)
