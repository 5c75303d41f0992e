"""Parameter counts: against what is published, and against sums by hand."""
import pytest

from solver.catalog.loader import preset, presets
from solver.catalog.records import Preset
from solver.cost.parameters import (embedding_parameters, final_parameters, head_parameters, idle_expert_parameters, layer_parameters, mtp_parameters,
                                    parameter_counts)
from solver.domain.model import Architecture, LayerClass, MoE, layer_classes
from solver.errors import NotCovered

DENSE = LayerClass(attention="full_attention", moe=False)
SPARSE = LayerClass(attention="full_attention", moe=True)


@pytest.mark.parametrize("given", presets(), ids=lambda p: p.name)
def test_every_preset_counts_as_published(given: Preset) -> None:
    counts = parameter_counts(given.architecture)
    assert counts.parameters == pytest.approx(given.published_parameters, rel=0.01)
    if given.published_active_parameters is not None:
        left_out = embedding_parameters(given.architecture) if given.active_count_omits_embedding else 0
        assert counts.active_parameters - left_out == pytest.approx(given.published_active_parameters, rel=0.01)


@pytest.mark.parametrize("name", ["llama-3.1-70b", "llama-3.2-1b", "qwen3-0.6b", "qwen2.5-7b", "gpt2", "opt-1.3b", "phi-2", "falcon-7b", "gemma-2-9b",
                                  "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2", "kimi-k2", "t5-11b", "mt5-xxl"])
def test_counts_are_exact_where_the_weights_were_counted(name: str) -> None:
    published = next(p.published_parameters for p in presets() if p.name == name)
    assert parameter_counts(preset(name)).parameters == published


def test_one_layer_by_hand() -> None:
    model = Architecture(num_layers=2, hidden_size=8, ffn_hidden_size=20, num_attention_heads=4, num_kv_heads=2, vocab_size=100)
    layer = layer_parameters(model, DENSE)
    assert layer.attention == 8 * 8 + 2 * 8 * 4 + 8 * 8
    assert layer.mlp == 3 * 8 * 20
    assert layer.norms == 2 * 8
    assert (layer.experts, layer.shared_experts, layer.router) == (0, 0, 0)
    assert layer.total == layer.attention + layer.mlp + layer.norms


def test_biases_norms_and_sinks_by_hand() -> None:
    model = Architecture(num_layers=1, hidden_size=8, ffn_hidden_size=20, gated_ffn=False, num_attention_heads=4, num_kv_heads=2, vocab_size=100,
                         attention_bias=True, ffn_bias=True, norm_bias=True, qk_norm="head", attention_sinks=True, norms_per_layer=4)
    layer = layer_parameters(model, DENSE)
    assert layer.attention == (64 + 64 + 64) + (8 + 2 * 4) + 8 + 4
    assert layer.mlp == 2 * 8 * 20 + 20 + 8
    assert layer.norms == 4 * 16 + 2 * 2
    assert final_parameters(model) == 16


def test_experts_by_hand() -> None:
    moe = MoE(num_experts=6, top_k=2, expert_ffn_hidden_size=10, num_shared_experts=2, router_bias=True)
    model = Architecture(num_layers=2, hidden_size=8, ffn_hidden_size=20, num_attention_heads=4, vocab_size=100, moe=moe)
    layer = layer_parameters(model, SPARSE)
    assert layer.experts == 6 * 3 * 8 * 10
    assert layer.shared_experts == 3 * 8 * 20
    assert layer.router == 8 * 6 + 6
    assert layer.mlp == 0
    assert idle_expert_parameters(model, SPARSE) == 4 * 3 * 8 * 10
    assert idle_expert_parameters(model, DENSE) == 0
    counts = parameter_counts(model)
    assert counts.parameters - counts.active_parameters == 2 * 4 * 3 * 8 * 10


def test_latent_attention_counts_as_deepseek_v3_does() -> None:
    layer = layer_parameters(preset("deepseek-v3"), DENSE)
    assert layer.attention == 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    assert layer.norms == 2 * 7168 + 1536 + 512


def test_tied_embeddings_count_once() -> None:
    body = {"num_layers": 1, "hidden_size": 8, "ffn_hidden_size": 20, "num_attention_heads": 4, "vocab_size": 100}
    untied, tied = Architecture(**body), Architecture(**body, tied_embeddings=True)
    assert (head_parameters(untied), head_parameters(tied)) == (800, 0)
    assert parameter_counts(untied).parameters - parameter_counts(tied).parameters == 800


def test_learned_positions_count_with_the_embedding() -> None:
    assert embedding_parameters(preset("gpt2")) == (50257 + 1024) * 768


def test_prediction_layers_count_with_the_model() -> None:
    model = preset("deepseek-v3")
    assert mtp_parameters(model) == pytest.approx(11.5e9, rel=0.02)
    body = sum(layer_parameters(model, cls).total for cls in layer_classes(model))
    rest = embedding_parameters(model) + head_parameters(model) + final_parameters(model) + mtp_parameters(model)
    assert parameter_counts(model).parameters == body + rest


@pytest.mark.parametrize("kind", ["linear_attention", "mamba"])
def test_layers_that_are_not_covered_are_refused(kind: str) -> None:
    model = Architecture(num_layers=1, hidden_size=8, ffn_hidden_size=20, num_attention_heads=4, vocab_size=100, layer_types=(kind,))
    with pytest.raises(NotCovered, match=kind):
        parameter_counts(model)


def test_a_layer_without_attention_has_none() -> None:
    model = Architecture(num_layers=1, hidden_size=8, ffn_hidden_size=20, num_attention_heads=4, vocab_size=100, layer_types=("mlp_only",))
    layer = layer_parameters(model, layer_classes(model)[0])
    assert (layer.attention, layer.mlp, layer.norms) == (0, 480, 8)
