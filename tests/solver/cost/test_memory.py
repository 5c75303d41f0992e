"""Published memory vectors, and that what is priced agrees with them where they apply."""
import pytest

from solver.cost.memory import (
    activation_bytes,
    gated_layer_bytes_published,
    recomputed_layer_bytes_published,
    state_bytes_per_parameter,
    transformer_layer_bytes_published,
)
from solver.cost.setting import setting
from solver.cost.share import Share
from solver.domain.model import Architecture
from tests.solver.cost.problems import problem

GPT3 = {"seq_len": 2048, "sequences": 1, "hidden": 12288, "heads": 96}
LLAMA_8B = Architecture(num_layers=32, hidden_size=4096, ffn_hidden_size=14336, num_attention_heads=32, num_kv_heads=8, vocab_size=128256)


@pytest.mark.parametrize(("options", "gigabytes"), [
    ({}, 2.869), ({"tp": 8}, 0.579), ({"tp": 8, "sequence_parallel": True}, 0.359), ({"tp": 8, "sequence_parallel": True, "selective": True}, 0.107)])
def test_gpt3_layer(options, gigabytes):
    assert transformer_layer_bytes_published(**GPT3, **options) / 1e9 == pytest.approx(gigabytes, abs=6e-4)


def test_llama_8b_layer():
    shape = {"seq_len": 8192, "sequences": 1, "hidden": 4096, "kv_width": 1024, "ffn": 14336}
    assert gated_layer_bytes_published(**shape) / 1e9 == pytest.approx(1.141, abs=6e-4)
    assert gated_layer_bytes_published(**shape, fused=False) / 1e9 == pytest.approx(1.376, abs=6e-4)


@pytest.mark.parametrize(("zero", "gradient", "expected"),
                         [(0, 4.0, 18.0), (1, 4.0, 6 + 12 / 8), (1, 2.0, 4 + 12 / 8), (2, 2.0, 2 + 14 / 8), (3, 2.0, 16 / 8)])
def test_state_bytes_by_zero_stage(zero, gradient, expected):
    assert state_bytes_per_parameter(zero, 8.0, gradient) == pytest.approx(expected)


def _share(tp: int = 1, sequence_parallel: bool = False, kernel: str = "flash_2", eager: bool = False) -> Share:
    return Share(sequences=1.0, seq_len=8192, tp=tp, cp=1, ep=1, etp=1, sequence_parallel=sequence_parallel, kernel=kernel, eager_norm=eager)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_priced_layer_is_the_published_one_plus_softmax_statistics(tp):
    """Gated layer, fused attention, sequence parallelism: the same bytes, and 4 b a s / t that flash attention keeps."""
    shared = setting(problem(LLAMA_8B, seq_len=8192))
    share = _share(tp, True)
    statistics = 4.0 * 8192 * 32 / tp
    published = {"seq_len": 8192, "sequences": 1, "hidden": 4096, "kv_width": 1024, "shards": tp}
    kept = activation_bytes(shared, shared.classes[0], share, "none", 1.0).kept
    assert kept == pytest.approx(gated_layer_bytes_published(**published, ffn=14336) + statistics)
    partial = activation_bytes(shared, shared.classes[0], share, "partial", 1.0).kept
    assert partial == pytest.approx(recomputed_layer_bytes_published(**published) + statistics)


def test_full_recompute_keeps_the_layer_input_alone():
    shared = setting(problem(LLAMA_8B, seq_len=8192))
    assert activation_bytes(shared, shared.classes[0], _share(), "full", 1.0).kept == 2.0 * 8192 * 4096


def test_unfused_scores_and_eager_norms_cost_memory():
    shared = setting(problem(LLAMA_8B, seq_len=8192))
    fused = activation_bytes(shared, shared.classes[0], _share(), "none", 1.0).kept
    unfused = activation_bytes(shared, shared.classes[0], _share(kernel="unfused"), "none", 1.0).kept
    eager = activation_bytes(shared, shared.classes[0], _share(eager=True), "none", 1.0).kept
    assert unfused - fused == pytest.approx(8.0 * 32 * 8192**2 - 4.0 * 32 * 8192)
    assert eager - fused == pytest.approx(8.0 * 8192 * 4096)
