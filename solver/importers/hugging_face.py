"""A Hugging Face config.json as an architecture: families of decoders and encoder-decoders, each with its own rules (`families.toml`)."""
import difflib
import functools
import tomllib
from importlib.resources import files
from typing import Any

from solver.domain.model import MLA, Architecture, QKNorm
from solver.errors import Assumption, Fault, InputError, NotCovered
from solver.importers.config_reader import INNER, KEYS, NOT_COVERED, ConfigReader
from solver.importers.hugging_face_layers import attention_layers, experts

Family = dict[str, Any]
COVERED = "decoders whose layers attend in full or in a window, dense or with experts; encoder-decoders of the T5 family"


@functools.cache
def _families() -> dict[str, tuple[str, Family]]:
    table = tomllib.loads((files("solver.importers") / "families.toml").read_text(encoding="utf-8"))
    return {model_type: (name, family) for name, family in table.items() for model_type in family["model_types"]}


def model_types() -> tuple[str, ...]:
    """Every `model_type` that can be imported."""
    return tuple(sorted(_families()))


def architecture_of(config: dict[str, Any]) -> tuple[Architecture, tuple[Assumption, ...]]:
    """The architecture of a config.json and what had to be assumed.

    Raises `InputError` with every fault (pointers are relative to the config), or `NotCovered` for what this version cannot express faithfully.
    Dropout, initialisation, positions other than learned ones and the stored precision do not matter to a plan and are not read.
    """
    if not isinstance(config, dict):
        raise InputError(Fault(pointer="", message="a config.json holds an object", legal="a JSON object"))
    _refuse_diffusers(config)
    inner, pointer = _text_part(config)
    for part, where in ((config, ""), (inner, pointer)):
        _refuse_what_is_not_covered(part, where)
    family_name, family = _family(inner, pointer)
    reader = ConfigReader(inner, pointer, outer=config, defaults=family.get("defaults"))
    _note_what_is_left_out(reader, config)
    model = _architecture(reader, family_name, family)
    return model, tuple(reader.assumptions)


def _refuse_diffusers(config: dict[str, Any]) -> None:
    if "_class_name" in config:
        raise NotCovered(Fault(pointer="/_class_name", message=f"{str(config['_class_name'])[:60]!r} is a diffusion model, which is not planned yet",
                               legal="a decoder's config.json, with a model_type"))


def _text_part(config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The text decoder inside a larger model, at most three levels down."""
    part, pointer = config, ""
    for _ in range(3):
        key = next((k for k in INNER["text"] if part.get(k) is not None), None)
        if key is None:
            break
        if not isinstance(part[key], dict):
            raise InputError(Fault(pointer=f"{pointer}/{key}", message="the text part is no object", legal="a JSON object"))
        part, pointer = part[key], f"{pointer}/{key}"
    return part, pointer


def _refuse_what_is_not_covered(config: dict[str, Any], pointer: str) -> None:
    faults = [Fault(pointer=f"{pointer}/{key}", message=f"{key} means {what}, which is not planned yet", legal=COVERED)
              for key, what in NOT_COVERED.items() if config.get(key) and not (key == "is_encoder_decoder" and _has_encoder(config))]
    if faults:
        raise NotCovered(*faults)


def _has_encoder(config: dict[str, Any]) -> bool:
    """Whether the family is one of the encoder-decoders that can be imported."""
    found = _families().get(str(config.get("model_type")))
    return found is not None and bool(found[1].get("encoder_decoder"))


def _family(config: dict[str, Any], pointer: str) -> tuple[str, Family]:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise InputError(Fault(pointer=f"{pointer}/model_type", message="the family of the model is missing", legal=", ".join(model_types())))
    found = _families().get(model_type)
    if found is None:
        close = difflib.get_close_matches(model_type[:100], _families(), n=3)
        near = f"close: {', '.join(close)}; all" if close else "one of"
        legal = f"{near}: {', '.join(model_types())}; or the model by its dimensions (architecture)"
        raise NotCovered(Fault(pointer=f"{pointer}/model_type", message=f"the family {model_type[:60]!r} is not known", legal=legal))
    return found


def _note_what_is_left_out(reader: ConfigReader, config: dict[str, Any]) -> None:
    for key in INNER["towers"]:
        if config.get(key) is not None:
            reader.assumptions.append(Assumption(pointer=f"/{key}", message=f"the tower of {key} is left out: only the text decoder is planned"))
    for pointer, part in {"": config, reader.pointer: reader.config}.items():
        if part.get("quantization_config") is not None:
            reader.assumptions.append(Assumption(pointer=f"{pointer}/quantization_config",
                                                 message="the stored quantisation is ignored: the workload's precision decides"))


def _architecture(reader: ConfigReader, family_name: str, family: Family) -> Architecture:
    num_layers, hidden_size = reader.needed("num_layers"), reader.needed("hidden_size")
    rule = family.get("sparse", "none")
    if reader.faults:                                      # without a number of layers, nothing about single layers can be checked
        raise InputError(*reader.faults)
    moe = experts(reader, rule, family, num_layers)
    layer_types, window = attention_layers(reader, family.get("window", "none"), num_layers)
    body: dict[str, Any] = {
        "name": _name(reader, family_name),
        "num_layers": num_layers, "hidden_size": hidden_size, "ffn_hidden_size": _ffn(reader, rule, hidden_size),
        "gated_ffn": family["gated_ffn"], "vocab_size": reader.needed("vocab_size"),
        "tied_embeddings": reader.flag("tie_word_embeddings", default=family.get("tied_embeddings", False), note=True),
        "moe": moe, "mla": _mla(reader), "layer_types": layer_types, "sliding_window": window,
        "max_position_embeddings": _positions(reader, family), "mtp_layers": _mtp_layers(reader),
        "attention_sinks": family.get("attention_sinks", False), "output_bias": family.get("head_bias", False),
        "norm_bias": family.get("norm_bias", False), "norms_per_layer": family.get("norms_per_layer", 2), "qk_norm": _qk_norm(reader, family),
        **_heads(reader, family, hidden_size), **_biases(reader, family),
        **(_encoder_decoder(reader, family, num_layers) if family.get("encoder_decoder") else {}),
    }
    _apply_own_rules(reader, family_name, body)
    if reader.faults:
        raise InputError(*reader.faults)
    try:
        return Architecture(**body)
    except InputError as error:
        raise InputError(*(_at_its_key(reader, fault) for fault in error.faults)) from None


def _encoder_decoder(reader: ConfigReader, family: Family, encoder_layers: int) -> dict[str, Any]:
    """What sets T5 and its kin apart: two stacks, position biases, and an activation that says whether the FFN is gated."""
    activation = reader.config.get("feed_forward_proj")
    gated = family["gated_ffn"] if not isinstance(activation, str) else activation.startswith("gated")
    decoder_layers = reader.whole("num_decoder_layers") or encoder_layers
    return {"kind": "encoder_decoder", "num_layers": encoder_layers + decoder_layers, "num_encoder_layers": encoder_layers, "gated_ffn": gated,
            "relative_position_buckets": reader.needed("relative_position_buckets"),
            "relative_positions_by_layer": family.get("relative_by_layer", False)}


def _at_its_key(reader: ConfigReader, fault: Fault) -> Fault:
    dimension = fault.pointer.rsplit("/", 1)[-1]
    key = reader.key_of(dimension) if dimension in KEYS else dimension
    return Fault(pointer=f"{reader.pointer}/{key}", message=fault.message, legal=fault.legal)


def _name(reader: ConfigReader, family_name: str) -> str:
    for where in (reader.config, reader.outer):
        stated = where.get("_name_or_path")
        if isinstance(stated, str) and stated.strip("/ "):
            return stated.strip("/ ").rsplit("/", 1)[-1][:253]
    return family_name


def _ffn(reader: ConfigReader, rule: str, hidden_size: int) -> int:
    if rule == "llama4" and reader.has("dense_ffn_hidden_size"):
        return reader.whole("dense_ffn_hidden_size") or 1
    if reader.has("ffn_hidden_size") or reader.config.get("model_type") not in ("gpt2", "falcon"):
        return reader.needed("ffn_hidden_size")
    return reader.defaulted("ffn_hidden_size", 4 * hidden_size, "four times the hidden size")


def _heads(reader: ConfigReader, family: Family, hidden_size: int) -> dict[str, int | None]:
    heads = reader.needed("num_attention_heads")
    if reader.has("kv_lora_rank"):                         # latent attention: its widths are stated apart
        return {"num_attention_heads": heads, "num_kv_heads": None, "head_dim": None}
    if reader.has("num_kv_heads"):
        kv_heads = reader.whole("num_kv_heads")
    elif family.get("all_kv_heads"):
        kv_heads = None
    else:
        kv_heads = reader.defaulted("num_kv_heads", reader.defaults.get("num_kv_heads", heads), "the family's own default")
    if reader.has("head_dim"):
        head_dim = reader.whole("head_dim")
    elif "head_dim" in reader.defaults and hidden_size != heads * reader.defaults["head_dim"]:
        head_dim = reader.defaulted("head_dim", reader.defaults["head_dim"], "the family's own default")
    else:
        head_dim = None
    return {"num_attention_heads": heads, "num_kv_heads": kv_heads, "head_dim": head_dim}


def _biases(reader: ConfigReader, family: Family) -> dict[str, bool | None]:
    attention = reader.flag(*family.get("bias_keys", ("attention_bias", "qkv_bias")), default=family.get("attention_bias", False))
    return {"attention_bias": attention, "attention_output_bias": family.get("output_bias"),
            "ffn_bias": reader.flag(*family.get("ffn_bias_keys", ("mlp_bias",)), default=family.get("ffn_bias", False))}


def _qk_norm(reader: ConfigReader, family: Family) -> QKNorm:
    rule: QKNorm | str = family.get("qk_norm", "none")
    if rule == "switch":
        return "head" if reader.flag("use_qk_norm", default=False) else "none"
    return "head" if rule == "head" else "projection" if rule == "projection" else "none"


def _mla(reader: ConfigReader) -> MLA | None:
    if not reader.has("kv_lora_rank"):
        return None
    sizes = {name: reader.needed(name) for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")}
    rank = reader.whole("q_lora_rank")
    return None if reader.faults else MLA(q_lora_rank=rank, **sizes)


def _positions(reader: ConfigReader, family: Family) -> int | None:
    extra = family.get("learned_positions")
    return None if extra is None else reader.needed("max_position_embeddings") + int(extra)


def _mtp_layers(reader: ConfigReader) -> int:
    if not reader.flag("use_mtp", default=True):
        return 0
    layers = reader.whole("mtp_layers") or 0
    if layers:
        reader.assume(reader.key_of("mtp_layers"), f"{layers} layer(s) of multi-token prediction are trained along", "0 leaves them out")
    return layers


def _apply_own_rules(reader: ConfigReader, family_name: str, body: dict[str, Any]) -> None:
    """What a family decides by keys of its own."""
    if family_name == "falcon":
        new = reader.flag("new_decoder_architecture", default=False)
        if not new and reader.flag("multi_query", default=True):
            body["num_kv_heads"] = 1                       # whatever num_kv_heads says
        norms = reader.config.get("num_ln_in_parallel_attn")
        parallel = reader.flag("parallel_attn", default=True)
        body["norms_per_layer"] = (norms if norms in (1, 2) else 2) if new else (1 if parallel else 2)
    if family_name == "opt" and reader.config.get("word_embed_proj_dim") not in (None, body["hidden_size"]):
        raise _refused(reader, "word_embed_proj_dim", "embeddings of another width than the layers", f"hidden_size ({body['hidden_size']})")
    if family_name == "phi" and reader.flag("qk_layernorm", default=False):
        raise _refused(reader, "qk_layernorm", "Phi with norms of queries and keys", "false")
    if family_name == "gpt2" and reader.flag("add_cross_attention", default=False):
        raise _refused(reader, "add_cross_attention", "cross-attention", "false")


def _refused(reader: ConfigReader, key: str, what: str, legal: str) -> NotCovered:
    return NotCovered(Fault(pointer=f"{reader.pointer}/{key}", message=f"{what} is not planned yet", legal=legal))
