"""Published memory vectors, that what is priced agrees with them where they apply, and bytes that Megatron-LM recorded."""
from dataclasses import replace
from typing import Any

import pytest

from solver.cost.memory import (
    activation_bytes,
    allocator_capacity_bytes,
    logits_bytes,
    logits_make_room,
    state_elements,
    state_parts,
    workspace_bytes,
)
from solver.cost.memory_published import gated_layer_bytes, recomputed_layer_bytes, state_bytes_per_parameter, transformer_layer_bytes
from solver.cost.setting import Setting, setting
from solver.cost.share import Share
from solver.cost.stage_memory import memory_of
from solver.cost.units import unit_costs
from solver.domain.model import MLA, Architecture, MoE
from solver.units import gib_from_bytes
from tests.solver.cost.problems import layout, node_group, problem, unit

GPT3: dict[str, Any] = {"seq_len": 2048, "sequences": 1, "hidden": 12288, "heads": 96}
GPT3_MODEL = Architecture(num_layers=96, hidden_size=12288, ffn_hidden_size=49152, gated_ffn=False, num_attention_heads=96, vocab_size=51200)
LLAMA_8B = Architecture(num_layers=32, hidden_size=4096, ffn_hidden_size=14336, num_attention_heads=32, num_kv_heads=8, vocab_size=128256)
MIB = 2.0**20


def share(tp: int = 1, sequence_parallel: bool = False, kernel: str = "flash_3", eager: bool = False, **changes: Any) -> Share:
    return replace(Share(sequences=1.0, seq_len=8192, tp=tp, cp=1, ep=1, etp=1, sequence_parallel=sequence_parallel, kernel=kernel,
                         eager_norm=eager), **changes)


def kept(of: Setting, at: Share, mode: str = "none") -> float:
    return activation_bytes(of, of.classes[-1], at, mode, 1.0).kept  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "gigabytes"), [
    ({}, 2.869), ({"tp": 8}, 0.579), ({"tp": 8, "sequence_parallel": True}, 0.359), ({"tp": 8, "sequence_parallel": True, "selective": True}, 0.107)])
def test_gpt3_layer(options: dict[str, Any], gigabytes: float) -> None:
    assert transformer_layer_bytes(**GPT3, **options) / 1e9 == pytest.approx(gigabytes, abs=6e-4)


def test_llama_8b_layer() -> None:
    shape: dict[str, Any] = {"seq_len": 8192, "sequences": 1, "hidden": 4096, "kv_width": 1024, "ffn": 14336}
    assert gated_layer_bytes(**shape) / 1e9 == pytest.approx(1.141, abs=6e-4)
    assert gated_layer_bytes(**shape, fused=False) / 1e9 == pytest.approx(1.376, abs=6e-4)


@pytest.mark.parametrize(("zero", "gradient", "expected"),
                         [(0, 4.0, 18.0), (1, 4.0, 6 + 12 / 8), (1, 2.0, 4 + 12 / 8), (2, 2.0, 2 + 14 / 8), (3, 2.0, 16 / 8)])
def test_state_bytes_by_zero_stage(zero: int, gradient: float, expected: float) -> None:
    assert state_bytes_per_parameter(zero, 8.0, gradient) == pytest.approx(expected)
    assert sum(state_parts(zero, 8.0, gradient, 12.0, 2.0)) == pytest.approx(expected)


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_priced_gpt_layer_is_the_published_one(tp: int, sequence_parallel: bool, fused: bool) -> None:
    """With dropout, term by term; fused attention keeps fp32 statistics in place of the scores."""
    of = setting(problem(GPT3_MODEL, seq_len=2048))
    at = share(tp, sequence_parallel, "flash_3" if fused else "unfused", seq_len=2048)
    published = {**GPT3, "tp": tp, "sequence_parallel": sequence_parallel}
    assert kept(of, at) == pytest.approx(transformer_layer_bytes(**published, selective=fused) + (4.0 * 2048 * 96 / tp if fused else 0.0))
    if not fused:
        assert kept(of, at, "selective") == pytest.approx(transformer_layer_bytes(**published, selective=True))


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_priced_gated_layer_is_the_published_one_plus_softmax_statistics(tp: int) -> None:
    of, at = setting(problem(LLAMA_8B, seq_len=8192)), share(tp, True)
    statistics = 4.0 * 8192 * 32 / tp
    published: dict[str, Any] = {"seq_len": 8192, "sequences": 1, "hidden": 4096, "kv_width": 1024, "shards": tp}
    assert kept(of, at) == pytest.approx(gated_layer_bytes(**published, ffn=14336) + statistics)
    assert kept(of, at, "partial") == pytest.approx(recomputed_layer_bytes(**published) + statistics)


def test_full_recompute_keeps_the_layer_input_alone() -> None:
    assert kept(setting(problem(LLAMA_8B, seq_len=8192)), share(), "full") == 2.0 * 8192 * 4096


def test_eager_code_keeps_more() -> None:
    """fp32 norms, the activated gate, the packed projection behind the rotated queries and keys, and an fp32 softmax with its copy."""
    of, hidden = setting(problem(LLAMA_8B, seq_len=8192)), 8192 * 4096
    assert kept(of, share(eager=True)) - kept(of, share()) == pytest.approx(hidden * (8.0 + 2.0 * 3.5 + 2.0 * 1.25))
    scores = 32.0 * 8192**2
    assert kept(of, share(kernel="unfused")) - kept(of, share()) == pytest.approx(2.0 * scores - 4.0 * 32 * 8192)
    assert kept(of, share(kernel="unfused", eager=True)) - kept(of, share(eager=True)) == pytest.approx(6.0 * scores - 4.0 * 32 * 8192)


def test_flash_attention_2_is_copied_where_the_sequence_comes_first() -> None:
    of = setting(problem(LLAMA_8B, seq_len=8192))
    assert kept(of, share(kernel="flash_2")) == kept(of, share())
    two = share(kernel="flash_2", sequences=2.0)
    assert kept(of, two) == pytest.approx(2.0 * kept(of, share()) + 2.0 * 2 * 8192 * 4096)
    assert kept(of, replace(two, framework="fsdp")) == pytest.approx(2.0 * kept(of, share()))


def test_dropout_is_assumed_where_its_default_is_on() -> None:
    masks = 2.0 * 2048 * 12288
    with_masks = kept(setting(problem(GPT3_MODEL, seq_len=2048)), share(seq_len=2048))
    assert with_masks - kept(setting(problem(GPT3_MODEL, seq_len=2048)), share(seq_len=2048, framework="fsdp")) == pytest.approx(masks)
    gated = replace(GPT3_MODEL, gated_ffn=True)
    assert kept(setting(problem(gated, seq_len=2048)), share(seq_len=2048)) - with_masks == pytest.approx(2.0 * 2048 * 49152 - masks)


def test_latent_attention_keeps_its_latents_twice() -> None:
    mla = MLA(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    model = Architecture(num_layers=2, hidden_size=7168, ffn_hidden_size=18432, num_attention_heads=128, vocab_size=1024, mla=mla)
    of, tokens = setting(problem(model, seq_len=8192)), 8192.0
    attention = 2.0 * 128 * (192 + 192 + 128) + 2.0 * 128 * 128 + 4.0 * 128 + 4.0 * (1536 + 512)
    assert kept(of, share()) == pytest.approx(tokens * (8.0 * 7168 + attention + 6.0 * 18432))


def test_experts_keep_routed_tokens_and_the_busiest_rank_decides() -> None:
    moe = MoE(num_experts=64, top_k=6, expert_ffn_hidden_size=1408, num_shared_experts=2)
    model = replace(LLAMA_8B, moe=moe)
    of, dense = setting(problem(model, seq_len=8192)), setting(problem(LLAMA_8B, seq_len=8192))
    alone, split = share(), share(ep=8)
    routed = 6.0 * 8192 * (2.0 * 4096 + 6.0 * 1408)
    rest = kept(dense, alone) - 6.0 * 8192 * 14336 + 6.0 * 8192 * 2816 + 12.0 * 8192 * 64
    assert kept(of, alone) == pytest.approx(rest + routed)
    assert kept(of, split) == pytest.approx(rest + 1.2 * routed)


def test_logits_by_loss() -> None:
    of, size = setting(problem(LLAMA_8B, seq_len=8192)), 8192.0 * 128256
    assert logits_bytes(of, share(8), True) == pytest.approx(6.0 * size / 8)
    assert logits_bytes(of, share(8), False) == pytest.approx(26.0 * size)
    assert logits_bytes(of, share(), False) == pytest.approx(14.0 * size)
    assert logits_bytes(of, share(framework="torchtitan"), True) == pytest.approx(14.0 * size)
    predicting = setting(problem(replace(LLAMA_8B, mtp_layers=1), seq_len=8192))
    assert logits_bytes(predicting, share(), True) == pytest.approx(10.0 * size)
    assert logits_make_room(of, share(), True)
    assert not logits_make_room(of, share(), False) and not logits_make_room(of, share(framework="torchtitan"), True)


@pytest.mark.parametrize(("recompute", "vocabulary"), [("full", 1024), ("full", 128_256), ("none", 128_256)])
def test_layers_running_backward_reuse_the_bytes_of_freed_logits(recompute: str, vocabulary: int) -> None:
    of = problem(replace(LLAMA_8B, vocab_size=vocabulary), seq_len=4096)
    freed, held = (unit_costs(of, unit(recompute=recompute, vocabulary_parallel_loss=flag)) for flag in (True, False))
    fixed = workspace_bytes(setting(of), setting(of).machines["g"])
    working = freed.buffers_bytes - fixed
    assert freed.logits_bytes + freed.head_buffers_bytes == pytest.approx(fixed + max(freed.logits_bytes, working))
    assert held.head_buffers_bytes == held.buffers_bytes == freed.buffers_bytes
    last = memory_of(of, layout(of.model, stage={"recompute": recompute})).stages[-1]
    assert last.logits_gib + last.buffers_gib == pytest.approx(gib_from_bytes(fixed + max(freed.logits_bytes, working)))


def test_working_memory_holds_what_is_computed_again_and_gradients() -> None:
    of = setting(problem(LLAMA_8B, seq_len=8192))
    none, full = (activation_bytes(of, of.classes[0], share(), mode, 1.0) for mode in ("none", "full"))
    assert none.working == pytest.approx(8192 * (4.0 * 4096 + 4.0 * 14336))
    assert full.working == pytest.approx(none.working + none.kept)


def test_workspaces_of_libraries() -> None:
    """cuBLAS takes 32 MiB in two threads, Transformer Engine 32 MiB from Hopper on and 4 MiB before, five times that with grouped products."""
    moe = replace(LLAMA_8B, moe=MoE(num_experts=8, top_k=2, expert_ffn_hidden_size=1024))
    for gpu, model, mib in (("A100-SXM4-80GB", LLAMA_8B, 68), ("H100-SXM5-80GB", LLAMA_8B, 96), ("H100-SXM5-80GB", moe, 224)):
        of = setting(problem(model, (node_group(gpu=gpu),)))
        assert workspace_bytes(of, of.machines["g"]) == mib * MIB


def test_states_by_framework() -> None:
    of, half = setting(problem()), setting(problem(gradient_precision="bf16"))
    assert state_elements(of, 1, "megatron") == (4.0, 12.0, 2.0)
    assert state_elements(of, 1, "megatron_deepspeed") == (6.0, 12.0, 2.0)
    assert state_elements(half, 1, "megatron_deepspeed") == (2.0, 12.0, 2.0)
    assert state_elements(of, 3, "fsdp") == (4.0, 8.0, 4.0)
    assert state_elements(setting(problem(precision="fp32")), 3, "fsdp") == (4.0, 8.0, 4.0)


def test_capacity_is_what_the_device_leaves_to_the_allocator() -> None:
    of = setting(problem())
    assert allocator_capacity_bytes(of, 80.0 * 2**30, 2) == pytest.approx((80.0 - 1.5 - 0.6) * 2**30 / 1.04)
    assert allocator_capacity_bytes(of, 2**30, 2) == 0.0


@pytest.mark.parametrize("tied", [False, True])
def test_zero_3_gathers_layers_and_keeps_the_ends_gathered(tied: bool) -> None:
    of = problem(replace(LLAMA_8B, tied_embeddings=tied), seq_len=512)
    two, three = (unit_costs(of, unit(replicas=8, zero_stage=zero)) for zero in (2, 3))
    layer, end = two.layers[setting(of).classes[0]].weights_bytes, 2.0 * 4096 * 128256
    assert three.layers[setting(of).classes[0]].weights_bytes == pytest.approx(layer / 8)
    assert three.buffers_bytes - two.buffers_bytes == pytest.approx(3.0 * layer)
    assert three.head_buffers_bytes - two.head_buffers_bytes == pytest.approx(3.0 * layer + (1.0 if tied else 2.0) * end + 2.0 * 4096)


# Peak allocated bytes of the last rank (1e9 B), as recorded by NVIDIA Megatron-LM's functional tests (Apache-2.0), in
# tests/functional_tests/test_cases/gpt: a GPT of 12 layers and one of 32 (gpt3_7b_tp4_pp1_memory_speed), learned positions, dropout 0.1, bf16.
SMALL_GPT: dict[str, Any] = {"num_layers": 12, "hidden_size": 512, "ffn_hidden_size": 2048, "gated_ffn": False, "num_attention_heads": 8,
                             "vocab_size": 50304, "tied_embeddings": True, "max_position_embeddings": 1024}
LARGE_GPT: dict[str, Any] = {"num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 16384, "gated_ffn": False, "num_attention_heads": 32,
                             "num_kv_heads": 8, "vocab_size": 131_584, "max_position_embeddings": 8192}
H100, A100, GB200 = "H100-SXM5-80GB", "A100-SXM4-80GB", "GB200-186GB"


@pytest.mark.parametrize(("gpu", "kernel", "changes", "recorded"), [
    (H100, "auto", {"replicas": 8, "micro_batch_size": 4}, 2.6918),                                                   # dist_optimizer
    (H100, "unfused", {"replicas": 8, "micro_batch_size": 4}, 4.7024),                                                # dist_optimizer_fim_dataset
    (A100, "auto", {"replicas": 8, "micro_batch_size": 4}, 2.7117),
    (H100, "auto", {"replicas": 8, "micro_batch_size": 4, "stage": {"recompute": "full", "zero_stage": 0}}, 2.5613),     # uniform_full_recompute
    (A100, "auto", {"replicas": 8, "micro_batch_size": 4, "stage": {"recompute": "full", "zero_stage": 0}}, 2.5362),
    (H100, "auto", {"replicas": 2, "micro_batch_size": 4, "stage": {"tp": 4}}, 1.0419),
    (GB200, "unfused", {"replicas": 2, "micro_batch_size": 4, "stage": {"tp": 4}}, 1.5430),
    (H100, "auto", {"pp": 2, "replicas": 2, "micro_batch_size": 4, "stage": {"tp": 2, "zero_stage": 0}}, 1.4280),
    (H100, "auto", {"pp": 2, "micro_batch_size": 4, "sequence_parallel": True, "stage": {"tp": 2, "cp": 2, "zero_stage": 0}}, 0.9350),
    (A100, "auto", {"pp": 2, "micro_batch_size": 4, "sequence_parallel": True, "stage": {"tp": 2, "cp": 2, "zero_stage": 0}}, 0.8570),
])
def test_recorded_bytes_of_a_small_gpt(gpu: str, kernel: str, changes: dict[str, Any], recorded: float) -> None:
    model = Architecture(**SMALL_GPT)
    of = problem(model, (node_group(gpu=gpu, nodes=1),), seq_len=1024, attention_kernel=kernel)
    last = memory_of(of, layout(model, framework="megatron", **changes)).stages[-1]
    assert last.total_gib * 2**30 / 1e9 == pytest.approx(recorded, rel=0.05)


@pytest.mark.parametrize(("gpu", "recorded"), [(A100, 58.1881), (H100, 57.1438), (GB200, 58.2175)])
def test_recorded_bytes_of_a_7b_gpt(gpu: str, recorded: float) -> None:
    model = Architecture(**LARGE_GPT)
    of = problem(model, (node_group(gpu=gpu, nodes=1),), seq_len=8192)
    found = memory_of(of, layout(model, framework="megatron", replicas=2, micro_batch_size=2, stage={"tp": 4}))
    assert found.peak_gib * 2**30 / 1e9 == pytest.approx(recorded, rel=0.03)
