"""The price of layouts: sums, properties, memory, the reasons that go with it."""
import math
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.cost.breakdown import after_drain
from solver.cost.pipeline import edges, layer_counts, unit_spec
from solver.cost.stages import chunk_times
from solver.cost.price import price, step_time_s
from solver.cost.units import unit_costs
from solver.domain.degrees import SCHEDULES
from solver.domain.layout import Layout
from solver.domain.model import Architecture
from solver.domain.problem import Problem
from tests.solver.cost.problems import SMALL, layout, node_group, problem, problems, units

quick = settings(max_examples=40)
DEEP = Architecture(num_layers=48, hidden_size=5120, ffn_hidden_size=13824, num_attention_heads=40, vocab_size=32000)


def layout_from(data: st.DataObject, of: Problem) -> Layout:
    spec = data.draw(units(of))
    pp = data.draw(st.integers(1, of.model.num_layers))
    body = {name: getattr(spec, name) for name in ("tp", "cp", "dp", "ep", "etp", "recompute", "zero_stage")}
    return layout(of.model, pp=pp, micro_batches=data.draw(st.sampled_from([1, 3, 8])), stage=body, replicas=spec.replicas,
                  micro_batch_size=spec.micro_batch_size,
                  schedule=data.draw(st.sampled_from(["1f1b", "gpipe"])), sequence_parallel=spec.sequence_parallel, ulysses=spec.ulysses,
                  vocabulary_parallel_loss=spec.vocabulary_parallel_loss, framework=spec.framework)


@quick
@given(data=st.data(), given_problem=problems())
def test_stage_times_are_sums_of_the_tables(data, given_problem):
    """Forward and backward of every stage equal counts times table entries, in the order of the model's classes, to the last bit."""
    laid = layout_from(data, given_problem)
    behind = edges(given_problem, laid)
    for j, (stage, chunks) in enumerate(zip(laid.stages, chunk_times(given_problem, laid), strict=True)):
        costs = unit_costs(given_problem, unit_spec(laid, stage))
        for name in ("forward_s", "backward_s"):
            expected = 0.0
            for cls, n in layer_counts(given_problem, stage.layers).items():
                expected += n * getattr(costs.layers[cls], name)
            expected += getattr(costs.embedding, name) if j == 0 else 0.0
            expected += getattr(costs.head, name) if j == laid.pp - 1 else 0.0
            assert getattr(chunks[0], name) == expected + behind[j]


@quick
@given(data=st.data(), given_problem=problems())
def test_every_layout_has_a_finite_price_whose_parts_sum_up(data, given_problem):
    estimate = price(given_problem, layout_from(data, given_problem))
    assert estimate.step_time_s is not None and estimate.time is not None and estimate.memory is not None
    parts = [getattr(estimate.time, name) for name in estimate.time.__dataclass_fields__]
    assert all(math.isfinite(x) and x >= 0.0 for x in parts)
    assert math.isclose(sum(parts), estimate.step_time_s, rel_tol=1e-9)
    for stage in estimate.memory.stages:
        split = [getattr(stage, f"{name}_gib") for name in ("weights", "gradients", "optimizer", "activations", "logits", "buffers")]
        assert math.isclose(sum(split), stage.total_gib, rel_tol=1e-12)
    assert 0.0 < estimate.mfu < math.inf and 0.0 < estimate.tokens_per_s < math.inf
    assert 0.0 < estimate.confidence.expected_error <= 1.0
    assert estimate.feasible == (not estimate.reasons)


def changed(of: Problem, **change: object) -> Problem:
    groups = tuple(replace(g, **change) for g in of.cluster.node_groups)
    return replace(of, cluster=replace(of.cluster, node_groups=groups))


@quick
@given(data=st.data(), given_problem=problems(), factor=st.sampled_from([1.01, 2.0, 10.0]))
def test_faster_links_never_slow_a_layout(data, given_problem, factor):
    laid = layout_from(data, given_problem)
    laid = replace(laid, stages=laid.stages[:1] if laid.pp > 2 else laid.stages)
    laid = layout(given_problem.model, pp=1, micro_batches=laid.micro_batches, micro_batch_size=laid.micro_batch_size, replicas=laid.replicas,
                  stage={"tp": laid.stages[0].tp, "cp": laid.stages[0].cp, "ep": laid.stages[0].ep, "zero_stage": laid.stages[0].zero_stage},
                  ulysses=laid.ulysses)
    tiers = tuple(replace(t, bandwidth_gb_s=t.bandwidth_gb_s * factor,
                          latency_us=t.latency_us / factor) for t in given_problem.cluster.node_groups[0].tiers)
    assert step_time_s(changed(given_problem, tiers=tiers), laid) <= step_time_s(given_problem, laid) * (1 + 1e-12)


@quick
@given(data=st.data(), given_problem=problems(), factor=st.sampled_from([1.01, 2.0]))
def test_faster_devices_never_slow_a_layout(data, given_problem, factor):
    spec = data.draw(units(given_problem))
    laid = layout(given_problem.model, pp=1, replicas=spec.replicas, micro_batch_size=spec.micro_batch_size, framework=spec.framework,
                  stage={"tp": spec.tp, "cp": spec.cp, "ep": spec.ep, "zero_stage": spec.zero_stage, "recompute": spec.recompute},
                  ulysses=spec.ulysses)
    assert step_time_s(changed(given_problem, speed_factor=factor), laid) <= step_time_s(given_problem, laid) * (1 + 1e-12)


@quick
@given(data=st.data(), given_problem=problems())
def test_more_memory_changes_no_time_and_never_raises_the_risk(data, given_problem):
    laid = layout_from(data, given_problem)
    device = given_problem.cluster.node_groups[0].device
    roomy = changed(given_problem, device=replace(device, memory_gib=2 * device.memory_gib, reported_memory_gib=2 * device.reported_memory_gib))
    before, after = price(given_problem, laid), price(roomy, laid)
    order = ("safe", "risky", "over")
    assert after.step_time_s == before.step_time_s
    assert order.index(after.risk) <= order.index(before.risk)


def test_a_stage_over_its_memory_names_the_term_and_the_gap():
    estimate = price(problem(DEEP, seq_len=8192), layout(DEEP, stage={"zero_stage": 0}))
    assert estimate.risk == "over" and estimate.fits_memory is False and estimate.feasible is False
    reason = next(r for r in estimate.reasons if r.code == "memory.over")
    gap = estimate.memory.peak_gib - estimate.memory.capacity_gib
    assert f"{gap:.2f} GiB over" in reason.message and reason.stage == 0 and reason.fix
    assert estimate.step_time_s > 0.0


def test_risk_follows_the_margin():
    of, laid = problem(), layout()
    fill = price(of, laid).memory
    share = fill.peak_gib / fill.capacity_gib
    assert price(replace(of, memory_margin=1.0 - share - 1e-6), laid).risk == "safe"
    assert price(replace(of, memory_margin=1.0 - share + 1e-6), laid).risk == "risky"


def test_the_first_stage_holds_more_activations_under_1f1b_and_all_alike_under_gpipe():
    of = problem(DEEP)
    one = price(of, layout(DEEP, pp=4, micro_batches=16)).memory.stages
    assert one[0].activations_gib > 1.9 * one[2].activations_gib
    gpipe = price(of, layout(DEEP, pp=4, micro_batches=16, schedule="gpipe")).memory.stages
    assert gpipe[1].activations_gib == gpipe[2].activations_gib > one[0].activations_gib


def test_mfu_counts_all_parameters_and_full_attention():
    of, laid = problem(), layout(micro_batches=32)
    estimate = price(of, laid)
    flops = 32 * 512 * (6 * estimate.model.parameters + 12 * SMALL.num_layers * 8 * 64 * 512)
    assert estimate.mfu == pytest.approx(flops / estimate.step_time_s / 312e12)
    assert estimate.model_tflops_per_gpu == pytest.approx(flops / estimate.step_time_s / 1e12)


def test_price_per_hour_needs_every_group_priced():
    priced, free = node_group("g", price_per_gpu_hour=2.0), node_group("h")
    assert price(problem(groups=(priced, free)), layout(stage={"tp": 4})).price_per_hour == 8.0
    assert price(problem(groups=(priced, free)), layout(stage={"tp": 4, "groups": ("g", "h")})).price_per_hour is None


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_is_priced_or_says_why_not(schedule):
    laid = layout(pp=2, micro_batches=8, schedule=schedule)
    if schedule == "interleaved":
        laid = layout(pp=2, virtual_stages=2, micro_batches=8)
    estimate = price(problem(global_batch_size=8), laid)
    codes = {r.code for r in estimate.reasons}
    assert estimate.memory is not None
    if schedule in ("gpipe", "1f1b", "interleaved"):
        assert estimate.feasible and estimate.step_time_s > 0.0
    elif schedule in ("stp", "slimpipe", "solver"):
        assert codes == {"schedule.unavailable"} and estimate.step_time_s is None
    else:
        assert codes == {"schedule.preview"} and estimate.step_time_s > 0.0 and not estimate.feasible


def test_zero_bubble_schedules_shorten_the_bubble():
    of = problem(DEEP)
    times = [price(of, layout(DEEP, pp=8, micro_batches=16, schedule=name)).time.bubble_s for name in ("1f1b", "zb-h1", "zb-h2")]
    assert times[0] > times[1] > times[2] >= 0.0


def test_interleaving_shortens_the_bubble_and_pays_transfers():
    of = problem(DEEP, global_batch_size=16)
    plain, split = price(of, layout(DEEP, pp=4, micro_batches=16)), price(of, layout(DEEP, pp=4, virtual_stages=2, micro_batches=16))
    assert split.time.bubble_s < plain.time.bubble_s
    assert split.feasible


def test_an_interleaved_layout_that_breaks_its_rules_still_has_a_time():
    estimate = price(problem(DEEP), layout(DEEP, pp=5, virtual_stages=2, micro_batches=7))
    assert {"pipeline.interleaved_micro_batches", "pipeline.chunks_uneven"} <= {r.code for r in estimate.reasons}
    assert estimate.step_time_s > 0.0


def test_the_slowest_stage_decides_the_time_after_the_drain():
    of = problem(DEEP)
    seconds, optimizer = after_drain(of, layout(DEEP, pp=4, replicas=8))
    assert 0.0 < optimizer < seconds
    assert after_drain(of, layout(DEEP, pp=4, replicas=1))[0] > optimizer


def test_pricing_a_long_pipeline_again_is_quick():
    of, laid = problem(DEEP), layout(DEEP, pp=16, micro_batches=32)
    price(of, laid)
    begin = time.perf_counter()
    for _ in range(10):
        price(of, laid)
    assert (time.perf_counter() - begin) / 10 < 0.05
