"""Fixes of stages that are over their memory: they touch what binds, and name only what is still possible."""
from dataclasses import replace

import pytest

from solver.cost.price import price
from solver.domain.model import Architecture
from tests.solver.cost.problems import layout, node_group, problem

LARGE = Architecture(num_layers=32, hidden_size=8192, ffn_hidden_size=28672, num_attention_heads=64, num_kv_heads=8, vocab_size=32000)
LITTLE = replace(LARGE, num_layers=8)


def fix(model, laid, gpus=32, **workload):
    nodes, per_node = (gpus // 8, 8) if gpus >= 8 else (1, gpus)
    of = problem(model, (node_group(nodes=nodes, gpus_per_node=per_node),), **{"seq_len": 4096, "global_batch_size": 32, **workload})
    reason = next(r for r in price(of, laid).reasons if r.code == "memory.over")
    assert reason.fix
    return reason.message, reason.fix


def test_states_that_alone_are_over_are_not_mended_by_activations():
    message, said = fix(LARGE, layout(LARGE, replicas=4, stage={"recompute": "full"}))
    assert "weights, gradients and optimizer alone" in message
    assert all(word in said for word in ("ZeRO stage 2 (over 4 ranks", "tp 2", "pipeline stages", "bf16 gradients", "more GPUs"))
    assert all(word not in said for word in ("recompute", "micro-batch", "sequence parallelism"))


def test_without_room_only_more_gpus_are_left():
    _, said = fix(LARGE, layout(LARGE, stage={"recompute": "full", "zero_stage": 3}), gpus=1, gradient_precision="bf16")
    assert said == "more GPUs, or GPUs with more memory"


def test_megatron_goes_no_further_than_the_optimizer():
    _, said = fix(LARGE, layout(LARGE, replicas=4, framework="megatron"))
    assert "ZeRO" not in said


@pytest.mark.parametrize(("change", "absent", "present"), [
    ({"stage": {"tp": 2}, "micro_batch_size": 2}, "virtual", "smaller than 2"),
    ({"micro_batch_size": 4}, "fewer virtual", "a micro-batch smaller than 4"),
    ({"stage": {"tp": 8, "recompute": "full"}, "micro_batch_size": 32}, "recompute", "sequence parallelism"),
    ({"schedule": "gpipe", "pp": 2, "micro_batches": 64, "stage": {"recompute": "selective", "tp": 4}}, "smaller than", "recompute partial or full"),
])
def test_activations_are_mended_by_what_is_still_possible(change, absent, present):
    message, said = fix(replace(LITTLE, num_layers=4), layout(replace(LITTLE, num_layers=4), **change), seq_len=32768)
    assert "activations alone" in message or "buffers alone" in message
    assert present in said and absent not in said


def test_a_gathered_loss_is_the_first_thing_to_change():
    model = replace(LITTLE, num_layers=2, vocab_size=1_024_000)
    laid = layout(model, stage={"tp": 8, "recompute": "full"}, sequence_parallel=True, vocabulary_parallel_loss=False)
    message, said = fix(model, laid, seq_len=8192)
    assert "logits alone" in message and said.startswith("vocabulary_parallel_loss, tp 16")


def test_layers_move_where_another_stage_has_room():
    model = replace(LITTLE, num_layers=16)
    laid = layout(model, pp=2, stage={"tp": 2})
    laid = replace(laid, stages=(replace(laid.stages[0], layers=((0, 13),)), replace(laid.stages[1], layers=((14, 15),))))
    assert "fewer than 14 layers in this stage" in fix(model, laid)[1]
