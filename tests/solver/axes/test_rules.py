"""Every rule of every axis: broken, it answers with its code and a legal fix; kept, it is silent."""
from dataclasses import replace

import pytest

from solver.axes.registry import AXES, violations
from solver.domain.model import Architecture, MoE
from tests.solver.cost.problems import SMALL, layout, node_group, problem

EXPERTS = Architecture(num_layers=4, hidden_size=512, ffn_hidden_size=1536, num_attention_heads=8, vocab_size=4096,
                       moe=MoE(num_experts=8, top_k=2, expert_ffn_hidden_size=256))
ODD = Architecture(num_layers=4, hidden_size=768, ffn_hidden_size=1536, num_attention_heads=12, num_kv_heads=6, head_dim=64, vocab_size=4096)


def codes(of, laid):
    return [r.code for r in violations(of, laid)]


def fixes(of, laid):
    return {r.code: r.fix for r in violations(of, laid)}


def test_a_plain_layout_breaks_no_rule():
    assert codes(problem(global_batch_size=8), layout()) == []


def test_every_axis_has_degrees_and_a_name():
    of = problem()
    assert [axis.name for axis in AXES] == ["tensor", "sequence", "context", "pipeline", "data", "expert", "recompute", "levers"]
    assert all(axis.legal_degrees(of) for axis in AXES)


CASES = [
    ("tensor.heads", SMALL, {"stage": {"tp": 16}}),
    ("tensor.kv_heads", ODD, {"stage": {"tp": 4}}),
    ("tensor.ffn", replace(SMALL, ffn_hidden_size=1540), {"stage": {"tp": 8}}),
    ("tensor.node", ODD, {"stage": {"tp": 6}}),
    ("sequence.length", SMALL, {"stage": {"tp": 8}, "sequence_parallel": True, "seq_len": 516}),
    ("context.length", SMALL, {"stage": {"cp": 2}, "seq_len": 510}),
    ("context.ulysses", SMALL, {"stage": {"cp": 4}, "ulysses": 3}),
    ("context.ulysses_heads", SMALL, {"stage": {"cp": 4, "tp": 4}, "ulysses": 4}),
    ("pipeline.virtual_stages", SMALL, {"pp": 2, "virtual_stages": 2, "schedule": "1f1b"}),
    ("pipeline.interleaved", SMALL, {"virtual_stages": 2}),
    ("pipeline.interleaved_micro_batches", SMALL, {"pp": 2, "virtual_stages": 2, "micro_batches": 7}),
    ("pipeline.chunks_uneven", replace(SMALL, num_layers=5), {"pp": 2, "virtual_stages": 2}),
    ("schedule.preview", SMALL, {"schedule": "zb-h1"}),
    ("schedule.unavailable", SMALL, {"schedule": "solver"}),
    ("data.batch_indivisible", SMALL, {"micro_batches": 7}),
    ("data.width", SMALL, {"stage": {"dp": 2}}),
    ("expert.no_experts", SMALL, {"stage": {"ep": 2}}),
    ("expert.divides", EXPERTS, {"stage": {"ep": 3, "cp": 3}, "seq_len": 516}),
    ("expert.ranks", EXPERTS, {"stage": {"ep": 4}}),
    ("expert.tensor", EXPERTS, {"stage": {"etp": 2}, "replicas": 2, "micro_batches": 4}),
    ("expert.width", replace(EXPERTS, moe=replace(EXPERTS.moe, expert_ffn_hidden_size=257)), {"stage": {"tp": 2, "etp": 2}}),
    ("lever.preview", SMALL, {"offload": 0.5}),
    ("lever.preview", SMALL, {"shard_group": 1}),
    ("lever.preview", SMALL, {"pipeline_vocabulary": True}),
    ("lever.preview", SMALL, {"slices": 4}),
]


@pytest.mark.parametrize(("code", "model", "change"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_a_broken_rule_is_named_with_a_fix(code, model, change):
    change = dict(change)
    of = problem(model, seq_len=change.pop("seq_len", 512), global_batch_size=8)
    found = [r for r in violations(of, layout(model, **change)) if r.code == code]
    assert len(found) == 1
    values = [v for v in change.values() if not isinstance(v, dict)] + list(change.get("stage", {}).values())
    assert found[0].fix and any(str(v).lower() in found[0].message for v in values)


@pytest.mark.parametrize(("field", "value", "code"), [("zero_stage", 0, "data.zero_mixed"), ("cp", 2, "context.mixed"), ("ep", 2, "expert.mixed")])
def test_stages_must_agree(field, value, code):
    laid = layout(EXPERTS, pp=2, replicas=2, micro_batches=4)
    laid = replace(laid, stages=(replace(laid.stages[0], **{field: value}), laid.stages[1]))
    assert code in codes(problem(EXPERTS, global_batch_size=8), laid)


def test_recompute_may_differ_unless_the_launcher_has_one_mode():
    laid = layout(pp=2)
    laid = replace(laid, stages=(replace(laid.stages[0], recompute="full"), laid.stages[1]))
    of = problem(global_batch_size=8)
    assert codes(of, laid) == []
    assert codes(of, replace(laid, framework="megatron")) == ["recompute.mixed"]
    assert "full" in fixes(of, replace(laid, framework="megatron"))["recompute.mixed"]


@pytest.mark.parametrize(("ranges", "code", "word"), [
    ([(0, 1), (3, 3)], "pipeline.layers_missing", "layer 2 is missing"), ([(0, 2), (2, 3)], "pipeline.layers_missing", "stands twice"),
    ([(0, 1), (2, 2)], "pipeline.layers_missing", "0 to 3"), ([(0, 3), (4, 3)], "pipeline.empty_stage", "no layers")])
def test_every_layer_once_and_in_order(ranges, code, word):
    laid = layout(pp=2)
    laid = replace(laid, stages=tuple(replace(s, layers=(r,)) for s, r in zip(laid.stages, ranges, strict=True)))
    (reason,) = violations(problem(global_batch_size=8), laid)
    assert reason.code == code and word in reason.message


@pytest.mark.parametrize(("heads", "kv", "ffn", "tp", "fix"), [
    (32, 8, 4096, 3, "tp 2"), (32, 8, 4096, 6, "tp 4"), (40, 40, 13824, 5, "tp 4"), (40, 40, 13824, 6, "tp 4"), (32, 32, 4098, 8, "tp 2")])
def test_tensor_fixes_break_no_other_rule(heads, kv, ffn, tp, fix):
    model = Architecture(num_layers=4, hidden_size=heads * 64, ffn_hidden_size=ffn, num_attention_heads=heads, num_kv_heads=kv, vocab_size=4096)
    of = problem(model, global_batch_size=8)
    found = [r for r in violations(of, layout(model, stage={"tp": tp})) if r.code.startswith("tensor.")]
    assert found and {r.fix for r in found} == {fix}
    assert codes(of, layout(model, stage={"tp": int(fix.split()[1])})) == []


def test_tensor_fixes_fit_every_group_of_the_stage():
    model = Architecture(num_layers=4, hidden_size=2048, ffn_hidden_size=4096, num_attention_heads=32, vocab_size=4096)
    of = problem(model, (node_group("a", gpus_per_node=8), node_group("b", gpus_per_node=6, nodes=8)), global_batch_size=8)
    assert fixes(of, layout(model, stage={"tp": 4, "groups": ("a", "b")})) == {"tensor.node": "tp 2"}


@pytest.mark.parametrize(("pp", "micro_batches", "layers", "fix"), [
    (3, 128, 12, "pp 2, or schedule 1f1b with virtual_stages 1"), (3, 7, 12, "schedule 1f1b with virtual_stages 1"),
    (6, 128, 32, "pp 4, or schedule 1f1b with virtual_stages 1")])
def test_rounds_are_mended_without_touching_the_batch(pp, micro_batches, layers, fix):
    model = replace(SMALL, num_layers=layers)
    laid = layout(model, pp=pp, virtual_stages=2, micro_batches=micro_batches)
    assert fixes(problem(model, global_batch_size=micro_batches), laid)["pipeline.interleaved_micro_batches"] == fix


def test_more_stages_than_layers():
    laid = layout(replace(SMALL, num_layers=5), pp=5)
    assert codes(problem(global_batch_size=8), laid) == ["pipeline.too_many_stages"]


def test_virtual_stages_need_alike_stages():
    laid = layout(pp=2, virtual_stages=2)
    laid = replace(laid, stages=(replace(laid.stages[0], tp=2), laid.stages[1]))
    assert codes(problem(global_batch_size=8), laid) == ["pipeline.unlike_stages"]


def test_a_rule_that_all_stages_break_is_told_once():
    assert codes(problem(global_batch_size=8), layout(pp=4, stage={"tp": 3})).count("tensor.heads") == 1


def test_tensor_groups_may_span_whole_nodes():
    many_heads = Architecture(num_layers=4, hidden_size=2048, ffn_hidden_size=4096, num_attention_heads=32, vocab_size=4096)
    of = problem(many_heads, (node_group(gpus_per_node=8),), global_batch_size=8)
    assert codes(of, layout(many_heads, stage={"tp": 16})) == []
    assert 16 in AXES[0].legal_degrees(of)
    small_nodes = problem(many_heads, (node_group(gpus_per_node=6, nodes=8),), global_batch_size=8)
    assert codes(small_nodes, layout(many_heads, stage={"tp": 4})) == ["tensor.node"]


def test_legal_context_degrees_leave_every_rank_two_chunks():
    context = next(axis for axis in AXES if axis.name == "context")
    assert context.legal_degrees(problem(seq_len=12)) == (1, 2, 3, 6)
    assert context.legal_degrees(problem(seq_len=15)) == (1,)


def test_data_degrees_divide_the_batch():
    data = next(axis for axis in AXES if axis.name == "data")
    assert data.legal_degrees(problem(global_batch_size=12)) == (1, 2, 3, 4, 6, 12)
