"""config.json files of decoder families: read faithfully, or refused with the key that says why."""
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.catalog.loader import preset
from solver.cost.parameters import parameter_counts
from solver.errors import InputError, NotCovered
from solver.importers.config_reader import config_of
from solver.importers.hugging_face import architecture_of, model_types

SAMPLES = Path(__file__).parents[2] / "samples" / "hf_configs"
LLAMA = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
         "num_hidden_layers": 32, "vocab_size": 128256, "tie_word_embeddings": False}


def sample(name: str) -> dict[str, Any]:
    return config_of((SAMPLES / f"{name}.json").read_text(encoding="utf-8"))


def same_shape(config: dict[str, Any], name: str, **differences: Any) -> None:
    """Whether a config reads as the preset of that name, but for its name and the stated differences."""
    model, _ = architecture_of(config)
    assert parameter_counts(model) == parameter_counts(replace(preset(name), **differences))
    wanted = replace(preset(name), name=model.name, head_dim=model.head_dim, num_kv_heads=model.num_kv_heads,
                     attention_output_bias=model.attention_output_bias, **differences)
    assert model == wanted
    assert (model.head_width, model.kv_heads) == (preset(name).head_width, preset(name).kv_heads)


@pytest.mark.parametrize(("file", "name"), [
    ("meta-llama--Meta-Llama-3.1-8B", "llama-3.1-8b"), ("meta-llama--Meta-Llama-3.1-70B", "llama-3.1-70b"),
    ("Qwen--Qwen3-0.6B", "qwen3-0.6b"), ("Qwen--Qwen3-1.7B", "qwen3-1.7b"), ("Qwen--Qwen3-8B", "qwen3-8b"),
    ("Qwen--Qwen3-30B-A3B", "qwen3-30b-a3b"), ("Qwen--Qwen3-235B-A22B", "qwen3-235b-a22b"), ("Qwen--Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
    ("Qwen--Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b-a35b"), ("mistralai--Mixtral-8x7B-v0.1", "mixtral-8x7b"),
    ("microsoft--phi-2", "phi-2"), ("openai--gpt-oss-120b", "gpt-oss-120b"), ("Qwen--Qwen3-VL-235B-A22B-Instruct", "qwen3-235b-a22b"),
    ("Qwen--Qwen3-VL-2B-Instruct", "qwen3-1.7b"), ("Qwen--Qwen3-VL-32B-Instruct", "qwen3-32b"),
])
def test_published_configs_read_as_the_presets(file: str, name: str) -> None:
    same_shape(sample(file), name)


def test_latent_attention_models_read_as_the_presets() -> None:
    pairs = {"deepseek-ai--DeepSeek-V3": "deepseek-v3", "moonshotai--Kimi-K2-Instruct": "kimi-k2", "moonshotai--Kimi-K2.5": "kimi-k2"}
    for file, name in pairs.items():
        model, _ = architecture_of(sample(file))
        assert model.mla == preset(name).mla
        assert model.moe == preset(name).moe
        assert parameter_counts(model) == parameter_counts(preset(name))


def test_gpt2_with_a_null_ffn_and_its_own_vocabulary() -> None:
    config = sample("gpt2-small-vocab50260")
    same_shape(config, "gpt2", vocab_size=50260)
    pointers = {a.pointer for a in architecture_of(config)[1]}
    assert pointers == {"/n_inner", "/tie_word_embeddings"}


def test_modules_of_token_prediction_are_counted_and_noted() -> None:
    model, assumptions = architecture_of(sample("MiniMaxAI--MiniMax-M2.5"))
    assert model.mtp_layers == 3
    assert any(a.pointer == "/num_mtp_modules" for a in assumptions)
    without, _ = architecture_of(sample("MiniMaxAI--MiniMax-M2.5") | {"use_mtp": False})
    assert parameter_counts(without) == parameter_counts(preset("minimax-m2"))


def test_llama_4_text_keeps_its_chunks() -> None:
    model, assumptions = architecture_of(sample("meta-llama--Llama-4-Scout-17B-16E-Instruct"))
    assert model.layer_types is not None
    assert model.layer_types[:4] == ("chunked_attention",) * 3 + ("full_attention",)
    assert model.sliding_window == 8192
    assert model.moe is not None and (model.moe.num_experts, model.moe.num_shared_experts) == (16, 1)
    assert parameter_counts(model).parameters == pytest.approx(107.8e9, rel=0.01)
    assert {a.pointer for a in assumptions} == {"/text_config/no_rope_layers", "/text_config/tie_word_embeddings"}


def test_towers_and_quantisation_are_noted() -> None:
    _, assumptions = architecture_of(sample("moonshotai--Kimi-K2.5"))
    assert {a.pointer for a in assumptions} == {"/vision_config", "/text_config/quantization_config"}


@pytest.mark.parametrize(("file", "pointer"), [
    ("Qwen--Qwen3.5-27B", "/text_config/linear_num_key_heads"), ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "/hybrid_override_pattern"),
    ("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "/layers_block_type"), ("deepseek-ai--DeepSeek-V3.2", "/index_topk"),
    ("deepseek-ai--DeepSeek-V4-Flash", "/compress_ratios"), ("zai-org--GLM-5", "/index_topk"), ("Hotshot-XL-unet", "/_class_name"),
    ("google--gemma-4-26B-A4B", "/text_config/enable_moe_block"),
])
def test_what_cannot_be_expressed_is_refused_by_its_key(file: str, pointer: str) -> None:
    with pytest.raises(NotCovered) as caught:
        architecture_of(sample(file))
    assert pointer in {f.pointer for f in caught.value.faults}
    assert all(f.legal for f in caught.value.faults)


@pytest.mark.parametrize(("change", "pointer"), [
    ({"is_encoder_decoder": True}, "/is_encoder_decoder"), ({"model_type": "rwkv"}, "/model_type"),
    ({"layer_types": ["linear_attention"] * 32}, "/layer_types"), ({"model_type": "minimax_m2", "attn_type_list": [0, 1]}, "/attn_type_list"),
])
def test_other_kinds_of_model_are_not_covered(change: dict[str, Any], pointer: str) -> None:
    with pytest.raises(NotCovered) as caught:
        architecture_of(LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 1} | change)
    assert [f.pointer for f in caught.value.faults] == [pointer]


def test_an_unknown_family_is_answered_with_the_close_ones() -> None:
    with pytest.raises(NotCovered, match=r"close: .*qwen3"):
        architecture_of(LLAMA | {"model_type": "qwen33"})
    assert {"llama", "mistral", "qwen3_moe", "deepseek_v3", "gpt2", "opt", "falcon", "gpt_oss"} <= set(model_types())


T5 = {"model_type": "t5", "is_encoder_decoder": True, "d_model": 1024, "d_ff": 65536, "d_kv": 128, "num_heads": 128, "num_layers": 24,
      "vocab_size": 32128, "relative_attention_num_buckets": 32, "feed_forward_proj": "relu", "tie_word_embeddings": True}
MT5 = {"model_type": "mt5", "is_encoder_decoder": True, "d_model": 4096, "d_ff": 10240, "d_kv": 64, "num_heads": 64, "num_layers": 24,
       "num_decoder_layers": 24, "vocab_size": 250112, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


@pytest.mark.parametrize(("config", "name"), [(T5, "t5-11b"), (MT5, "mt5-xxl")])
def test_encoder_decoders_read_as_the_presets(config: dict[str, Any], name: str) -> None:
    model, _ = architecture_of(config)
    assert replace(model, name=name, num_kv_heads=None) == replace(preset(name), num_kv_heads=None)


def test_the_sides_of_an_encoder_decoder_may_differ() -> None:
    model, _ = architecture_of(MT5 | {"num_decoder_layers": 6})
    assert (model.num_layers, model.encoder_layers) == (30, 24)


def test_position_biases_in_every_layer_are_counted() -> None:
    every, two = (parameter_counts(architecture_of(MT5 | {"model_type": kind})[0]).parameters for kind in ("umt5", "mt5"))
    assert every - two == (48 - 2) * 32 * 64


@pytest.mark.parametrize(("key", "value"), [
    ("hidden_size", "4096"), ("hidden_size", True), ("hidden_size", 4096.0), ("hidden_size", -1), ("hidden_size", 0),
    ("hidden_size", [4096]), ("num_hidden_layers", 10**9), ("num_hidden_layers", math.nan), ("num_hidden_layers", {}),
    ("vocab_size", 10**400), ("vocab_size", 1e308),
    ("intermediate_size", -14336), ("num_attention_heads", 0), ("num_key_value_heads", -8), ("num_key_value_heads", 7),
    ("tie_word_embeddings", "yes"),
    ("layer_types", "full_attention"), ("layer_types", ["full_attention"]), ("layer_types", [1] * 32), ("model_type", 7), ("model_type", None),
])
def test_bad_values_are_faults_at_their_key(key: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        architecture_of(LLAMA | {key: value})
    (fault,) = caught.value.faults
    assert fault.pointer == f"/{key}"
    assert fault.legal
    assert len(fault.message) < 200


@pytest.mark.parametrize("key", ["hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "model_type"])
def test_missing_keys_are_named(key: str) -> None:
    with pytest.raises(InputError) as caught:
        architecture_of({k: v for k, v in LLAMA.items() if k != key})
    assert [f.pointer for f in caught.value.faults] == [f"/{key}"]


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(InputError) as caught:
        architecture_of(LLAMA | {"vocab_size": "many", "intermediate_size": -1, "num_attention_heads": None})
    assert {f.pointer for f in caught.value.faults} == {"/vocab_size", "/intermediate_size", "/num_attention_heads"}


def test_defaults_are_assumptions() -> None:
    _, none = architecture_of(LLAMA)
    assert none == ()
    model, assumptions = architecture_of({k: v for k, v in LLAMA.items() if k not in ("num_key_value_heads", "tie_word_embeddings")})
    assert model.kv_heads == 32
    assert {a.pointer for a in assumptions} == {"/num_key_value_heads", "/tie_word_embeddings"}


def test_two_keys_that_disagree_are_noted_with_the_other_value() -> None:
    config = sample("openai--gpt-oss-120b")
    assert not [a for a in architecture_of(config)[1] if "disagree" in a.message]
    model, assumptions = architecture_of(config | {"experts_per_token": 6})
    (note,) = [a for a in assumptions if "disagree" in a.message]
    assert model.moe is not None and model.moe.top_k == 4
    assert note.alternatives == ("experts_per_token = 6",)


FALCON = {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_kv_heads": 71, "num_hidden_layers": 32, "vocab_size": 65024,
          "multi_query": True, "parallel_attn": True, "bias": False, "new_decoder_architecture": False}


def test_falcons_multi_query_wins_over_its_number_of_kv_heads() -> None:
    same_shape(FALCON, "falcon-7b")
    model, _ = architecture_of(FALCON | {"multi_query": False})
    assert model.kv_heads == 71
    newer = {"new_decoder_architecture": True, "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8, "num_hidden_layers": 60}
    same_shape(FALCON | newer, "falcon-40b")


def test_opt_counts_its_offset_positions_and_refuses_narrow_embeddings() -> None:
    opt = {"model_type": "opt", "hidden_size": 2048, "ffn_dim": 8192, "num_attention_heads": 32, "num_hidden_layers": 24, "vocab_size": 50272,
           "max_position_embeddings": 2048, "word_embed_proj_dim": 2048}
    same_shape(opt, "opt-1.3b")
    with pytest.raises(NotCovered, match="word_embed_proj_dim"):
        architecture_of(opt | {"word_embed_proj_dim": 512})


def test_gpt_neox_qwen2_and_gemma_2() -> None:
    same_shape({"model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576, "num_attention_heads": 64, "num_hidden_layers": 44,
                "vocab_size": 50432, "tie_word_embeddings": False}, "gpt-neox-20b")
    same_shape({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4,
                "num_hidden_layers": 28, "vocab_size": 152064, "sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28},
               "qwen2.5-7b")
    same_shape({"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16, "num_key_value_heads": 8,
                "head_dim": 256, "num_hidden_layers": 42, "vocab_size": 256000, "sliding_window": 4096}, "gemma-2-9b")


def test_gemma_3_fills_in_what_its_class_knows() -> None:
    model, assumptions = architecture_of({"model_type": "gemma3", "vision_config": {}, "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}})
    assert (model.num_attention_heads, model.kv_heads, model.head_width, model.vocab_size) == (8, 4, 256, 262208)
    assert model.layer_types is not None and model.layer_types.count("full_attention") == 5
    assert model.tied_embeddings and model.qk_norm == "head"
    assert parameter_counts(model).parameters == pytest.approx(3.88e9, rel=0.01)
    assert {"/text_config/num_attention_heads", "/text_config/layer_types", "/vision_config"} <= {a.pointer for a in assumptions}


def test_windows_of_mistral_and_of_late_qwen_layers() -> None:
    model, _ = architecture_of(LLAMA | {"model_type": "mistral", "sliding_window": 4096})
    assert model.layer_types == ("sliding_attention",) * 32
    assert architecture_of(LLAMA | {"model_type": "mistral", "sliding_window": None})[0].layer_types is None
    model, _ = architecture_of(LLAMA | {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 30})
    assert model.layer_types == ("full_attention",) * 30 + ("sliding_attention",) * 2


QWEN_MOE = LLAMA | {"model_type": "qwen3_moe", "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 768}


@pytest.mark.parametrize(("change", "sparse"), [
    ({}, range(32)), ({"decoder_sparse_step": 2}, range(1, 32, 2)), ({"mlp_only_layers": [0, 1, 2]}, range(3, 32)),
    ({"mlp_layer_types": ["dense"] * 4 + ["sparse"] * 28}, range(4, 32)),
])
def test_which_layers_have_experts(change: dict[str, Any], sparse: range) -> None:
    model, _ = architecture_of(QWEN_MOE | change)
    assert [i for i in range(32) if model.is_moe_layer(i)] == list(sparse)


def test_experts_in_scattered_layers_are_not_covered() -> None:
    with pytest.raises(NotCovered, match="mlp_only_layers"):
        architecture_of(QWEN_MOE | {"mlp_only_layers": [5, 17]})


def test_more_experts_per_token_than_experts() -> None:
    with pytest.raises(InputError) as caught:
        architecture_of(QWEN_MOE | {"num_experts_per_tok": 17})
    assert [f.pointer for f in caught.value.faults] == ["/num_experts_per_tok"]


DEEP = {"model_type": "deepseek_v3", "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


@pytest.mark.parametrize(("change", "pointer"), [({"n_group": 7, "topk_group": 4}, "/n_group"), ({"n_group": 8, "topk_group": 9}, "/topk_group"),
                                                 ({"n_group": 64, "topk_group": 1, "num_experts_per_tok": 8}, "/topk_group")])
def test_groups_of_experts_are_read_and_checked(change: dict[str, Any], pointer: str) -> None:
    moe = architecture_of(LLAMA | DEEP | {"n_group": 8, "topk_group": 4})[0].moe
    assert moe is not None and (moe.num_groups, moe.top_groups) == (8, 4)
    with pytest.raises(InputError) as caught:
        architecture_of(LLAMA | DEEP | change)
    assert [f.pointer for f in caught.value.faults] == [pointer]


@pytest.mark.parametrize(("text", "word"), [
    ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "LFS"), ('"model_type": "llama"}', "first brace"), ("[1]", "object"),
    ("", "JSON"), ("[" * 100_000, "JSON"),
])
def test_texts_that_are_no_config(text: str, word: str) -> None:
    with pytest.raises(InputError, match=word):
        config_of(text)


WORDS = st.text("aé_/\n", max_size=8)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-5, 10**12), st.floats(), WORDS, st.lists(st.integers(-2, 40), max_size=8),
                   st.dictionaries(WORDS, st.integers(-2, 40), max_size=2))
FILES = sorted(path.stem for path in SAMPLES.glob("*.json"))


@settings(max_examples=300)
@given(st.sampled_from(FILES), st.data())
def test_whatever_a_value_is_replaced_by_nothing_but_bad_input_is_raised(file: str, data: st.DataObject) -> None:
    config = sample(file)
    inner = config.get("text_config", config)
    for key in data.draw(st.lists(st.sampled_from(sorted(inner)), max_size=3)):
        inner[key] = data.draw(VALUES)
    try:
        model, assumptions = architecture_of(config)
    except InputError as error:
        assert error.faults
        assert all(f.pointer.startswith("/") and len(f.message) < 400 for f in error.faults)
    else:
        assert parameter_counts(model).parameters > 0
        assert json.dumps([a.message for a in assumptions])
