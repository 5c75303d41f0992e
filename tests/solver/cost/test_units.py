"""Properties of unit costs that the search relies on."""
import math
import time
from dataclasses import asdict, replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from solver.cost.machine import attention_kernel
from solver.cost.setting import setting
from solver.cost.unit import PartCost, UnitCosts
from solver.cost.units import edge_seconds, unit_costs
from solver.domain.model import Architecture
from tests.solver.cost.problems import GPUS, node_group, problem, problems, unit, units

quick = settings(max_examples=60)


def busy_s(costs: UnitCosts) -> list[float]:
    """Forward and backward of every layer class and both ends."""
    return [value for part in (*costs.layers.values(), costs.embedding, costs.head) for value in (part.forward_s, part.backward_s)]


def sync_s(costs: UnitCosts) -> list[float]:
    return [value for piece in costs.sync for value in (piece.constant_s, *piece.per_layer_s.values(), piece.embedding_s, piece.head_s)]


def sizes(costs: UnitCosts) -> list[float]:
    """Bytes of a stage by part: states, activations, logits, buffers."""
    parts = (*costs.layers.values(), costs.embedding, costs.head)
    return [part.weights_bytes + part.gradients_bytes + part.optimizer_bytes for part in parts] + [part.activation_bytes for part in parts] + [
        costs.logits_bytes, costs.buffers_bytes, costs.logits_bytes + costs.head_buffers_bytes]


def never_more(left: list[float], right: list[float]) -> bool:
    return all(a <= b * (1.0 + 1e-12) for a, b in zip(left, right, strict=True))


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [x for v in value.values() for x in numbers(v)]
    if isinstance(value, list | tuple):
        return [x for v in value for x in numbers(v)]
    return [float(value)] if isinstance(value, int | float) else []


@quick
@given(data=st.data(), given_problem=problems())
def test_every_number_is_finite_and_not_negative(data, given_problem):
    costs = unit_costs(given_problem, data.draw(units(given_problem, (None, "megatron", "fsdp", "torchtitan", "deepspeed"))))
    found = [x for part in (*costs.layers.values(), costs.embedding, costs.head, costs.shared_ends) for x in numbers(asdict(part))]
    found += [costs.logits_bytes, costs.buffers_bytes, costs.head_buffers_bytes]
    found += [costs.capacity_bytes, costs.optimizer_share, *sync_s(costs), costs.sync[0].shared_ends_s]
    assert all(math.isfinite(x) and x >= 0.0 for x in found)
    assert costs.optimizer_share <= 1.0


@quick
@given(data=st.data(), given_problem=problems())
def test_parts_sum_to_forward_and_backward(data, given_problem):
    costs = unit_costs(given_problem, data.draw(units(given_problem)))
    for part in (*costs.layers.values(), costs.embedding, costs.head):
        assert math.isclose(sum(numbers(asdict(part.parts))), part.forward_s + part.backward_s, rel_tol=1e-9)
        assert part.weight_gradient_s <= part.backward_s * (1 + 1e-9)


@quick
@given(data=st.data(), given_problem=problems())
def test_zero_stage_1_is_never_slower_nor_larger_than_0(data, given_problem):
    spec = data.draw(units(given_problem))
    none, one = unit_costs(given_problem, replace(spec, zero_stage=0)), unit_costs(given_problem, replace(spec, zero_stage=1))
    assert busy_s(one) == busy_s(none)
    assert never_more(sync_s(one), sync_s(none))
    assert never_more(sizes(one), sizes(none))


@quick
@given(data=st.data(), given_problem=problems())
def test_sequence_parallelism_is_never_slower_nor_larger(data, given_problem):
    spec = data.draw(units(given_problem))
    assume(spec.tp > 1)
    on, off = unit_costs(given_problem, replace(spec, sequence_parallel=True)), unit_costs(given_problem, replace(spec, sequence_parallel=False))
    assert never_more(busy_s(on), busy_s(off))
    assert never_more(sizes(on), sizes(off))


def test_sequence_parallelism_changes_nothing_without_tensor_parallelism():
    p = problem()
    on, off = unit_costs(p, unit(sequence_parallel=True)), unit_costs(p, unit(sequence_parallel=False))
    assert (busy_s(on), sync_s(on), sizes(on)) == (busy_s(off), sync_s(off), sizes(off))


@quick
@given(data=st.data(), given_problem=problems())
def test_vocabulary_parallel_loss_is_never_slower_nor_larger(data, given_problem):
    spec = data.draw(units(given_problem))
    on, off = (unit_costs(given_problem, replace(spec, vocabulary_parallel_loss=flag)) for flag in (True, False))
    assert never_more(busy_s(on), busy_s(off))
    assert never_more(sizes(on), sizes(off))


@quick
@given(data=st.data(), given_problem=problems())
def test_selective_recompute_equals_none_under_fused_attention(data, given_problem):
    spec = data.draw(units(given_problem))
    shared = setting(given_problem)
    machine = shared.machines["g"]
    assume(attention_kernel(shared.constants, machine.arch, shared.workload, shared.constants.stack(spec.framework).attention) != "unfused")
    none, selective = (unit_costs(given_problem, replace(spec, recompute=mode)) for mode in ("none", "selective"))
    assert busy_s(none) == busy_s(selective)
    assert sizes(none) == sizes(selective)


@quick
@given(data=st.data(), given_problem=problems(), width=st.sampled_from([2, 3, 4]))
def test_width_equals_a_smaller_micro_batch(data, given_problem, width):
    """A stage of width w on micro-batches of b costs what width 1 costs on b / w, apart from synchronisation and edges."""
    spec = data.draw(units(given_problem))
    narrow = unit_costs(given_problem, replace(spec, replicas=spec.replicas * width))
    wide = unit_costs(given_problem, replace(spec, dp=width, micro_batch_size=spec.micro_batch_size * width))
    assert busy_s(narrow) == busy_s(wide)
    assert sizes(narrow) == sizes(wide)
    assert narrow.capacity_bytes == wide.capacity_bytes


@quick
@given(data=st.data(), given_problem=problems())
def test_more_of_anything_that_is_recomputed_is_kept_less(data, given_problem):
    spec = data.draw(units(given_problem))
    kept = [[part.activation_bytes for part in unit_costs(given_problem, replace(spec, recompute=mode)).layers.values()] for mode in ("full",
                                                                                                                                      "partial",
                                                                                                                                      "none")]
    assert never_more(kept[0], kept[1]) or spec.tp > 1
    assert never_more(kept[1], kept[2])


@quick
@given(data=st.data(), given_problem=problems(), gpus=st.lists(st.sampled_from(GPUS), min_size=2, max_size=3, unique=True))
def test_several_groups_run_at_the_slowest_member(data, given_problem, gpus):
    groups = tuple(node_group(name, gpu) for name, gpu in zip("abc", gpus, strict=False))
    of = problem(given_problem.model, groups, seq_len=given_problem.workload.seq_len, precision=given_problem.workload.precision)
    spec = replace(data.draw(units(of)), zero_stage=1)
    alone = [unit_costs(of, replace(spec, groups=(g.name,))) for g in groups]
    both = unit_costs(of, replace(spec, groups=tuple(g.name for g in groups)))
    slowest = [max(values) for values in zip(*(busy_s(one) for one in alone), strict=True)]
    assert never_more(slowest, busy_s(both))
    assert of.model.mtp_layers or busy_s(both) == slowest
    assert sizes(both) == [max(values) for values in zip(*(sizes(one) for one in alone), strict=True)]
    assert both.capacity_bytes == min(one.capacity_bytes for one in alone)
    for part in (*both.layers.values(), both.embedding, both.head):
        assert math.isclose(sum(numbers(asdict(part.parts))), part.forward_s + part.backward_s, rel_tol=1e-9)


def test_tied_weights_are_held_once_where_first_is_last():
    tied = Architecture(num_layers=2, hidden_size=512, ffn_hidden_size=1536, num_attention_heads=8, vocab_size=4096, tied_embeddings=True)
    costs = unit_costs(problem(tied), unit())
    assert costs.shared_ends.weights_bytes == 2.0 * 4096 * 512
    assert costs.head.weights_bytes > costs.shared_ends.weights_bytes
    assert costs.sync[0].shared_ends_s > 0.0
    assert unit_costs(problem(), unit()).shared_ends == PartCost()


def test_host_floor_bounds_tiny_layers():
    tiny = Architecture(num_layers=2, hidden_size=64, ffn_hidden_size=64, num_attention_heads=2, vocab_size=128)
    p = problem(tiny, seq_len=16)
    host = setting(p).constants.host
    layer = next(iter(unit_costs(p, unit()).layers.values()))
    assert math.isclose(layer.forward_s + layer.backward_s, host.forward_s + host.backward_s)


def test_edges_follow_the_stack_and_the_fabric():
    p = problem()
    scattered, copied = unit(tp=4, framework="megatron"), unit(tp=4, framework="megatron_deepspeed")
    near, far = (edge_seconds(p, scattered, scattered, flag, 1) for flag in (True, False))
    assert near < far
    assert edge_seconds(p, copied, copied, False, 1) > 2 * far
    assert edge_seconds(p, scattered, scattered, False, 2) < far


def test_costs_are_memoised_and_quick():
    p = problem()
    assert unit_costs(p, unit()) is unit_costs(p, unit())
    begin = time.perf_counter()
    for n in range(1, 201):
        unit_costs(p, unit(replicas=n))
    assert (time.perf_counter() - begin) / 200 < 5e-3
