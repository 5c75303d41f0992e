"""Which layer of a Hugging Face model is of which kind: attention by layer, experts by layer."""
from collections.abc import Sequence
from typing import Any, cast

from solver.domain.model import LayerType, MoE
from solver.errors import Fault, NotCovered
from solver.importers.config_reader import ConfigReader

_EXPRESSIBLE = ("full_attention", "sliding_attention", "chunked_attention")
_SPELLINGS = {"attention": "full_attention", "full": "full_attention", "sliding": "sliding_attention", "chunked": "chunked_attention"}


def attention_layers(reader: ConfigReader, window: str | Sequence[str], num_layers: int) -> tuple[tuple[LayerType, ...] | None, int | None]:
    """The attention of every layer and the window of those that have one; (None, None) where every layer attends in full."""
    _refuse_linear(reader)
    types = _stated_types(reader, num_layers)
    if types is None:
        types = _chunked(reader, num_layers) or _windowed(reader, window, num_layers)
    if types is None or set(types) == {"full_attention"}:
        return None, None
    dimension = "attention_chunk_size" if "chunked_attention" in types else "sliding_window"
    return cast(tuple[LayerType, ...], types), reader.needed(dimension)


def _refuse_linear(reader: ConfigReader) -> None:
    kinds = reader.config.get("attn_type_list")
    if isinstance(kinds, list) and any(k != 1 for k in kinds):
        raise _not_covered(reader, "attn_type_list", "linear attention")


def _not_covered(reader: ConfigReader, key: str, what: str) -> NotCovered:
    return NotCovered(Fault(pointer=f"{reader.pointer}/{key}", message=f"{key} says {what}, which is not planned yet",
                            legal="decoders whose layers attend in full or in a window, dense or with experts"))


def _stated_types(reader: ConfigReader, num_layers: int) -> tuple[str, ...] | None:
    stated = reader.words("layer_types", num_layers)
    if stated is None:
        return None
    types = tuple(_SPELLINGS.get(t, t) for t in stated)
    for name in types:
        if name not in _EXPRESSIBLE:
            raise _not_covered(reader, "layer_types", f"{name[:60]!r}")
    return types


def _chunked(reader: ConfigReader, num_layers: int) -> tuple[str, ...] | None:
    """Llama 4: layers with rotary positions attend in chunks; every fourth layer has none and attends in full."""
    if not reader.has("attention_chunk_size"):
        return None
    rotary = reader.config.get("no_rope_layers")
    if isinstance(rotary, list) and len(rotary) == num_layers:
        return tuple("chunked_attention" if r else "full_attention" for r in rotary)
    reader.assume("no_rope_layers", "no_rope_layers is not given; every fourth layer attends in full, the others in chunks")
    return tuple("full_attention" if i % 4 == 3 else "chunked_attention" for i in range(num_layers))


def _windowed(reader: ConfigReader, window: str | Sequence[str], num_layers: int) -> tuple[str, ...] | None:
    if not isinstance(window, str):
        period = list(window)
        if reader.has("sliding_window_pattern"):
            every = reader.whole("sliding_window_pattern") or 1
            period = ["sliding_attention"] * (every - 1) + ["full_attention"]
        reader.assume("layer_types", f"layer_types is not given; the family's pattern is taken: {', '.join(period)}")
        return tuple(period[i % len(period)] for i in range(num_layers))
    if not reader.has("sliding_window") or window == "none":
        return None
    if window == "always":
        return ("sliding_attention",) * num_layers
    if not reader.flag("use_sliding_window", default=False):
        return None
    first = reader.defaulted("max_window_layers", 0, "every layer has the window")
    return tuple("sliding_attention" if i >= first else "full_attention" for i in range(num_layers))


def experts(reader: ConfigReader, rule: str, family: dict[str, Any], num_layers: int) -> MoE | None:
    """The mixture of experts of a family's rule, or None where the model is dense."""
    if rule == "none" or (rule == "deepseek" and not reader.has("num_experts")):
        return None
    numbers = {"num_experts": reader.needed("num_experts"), "top_k": reader.needed("top_k")}
    own_width = rule in ("qwen", "deepseek")
    numbers["expert_ffn_hidden_size"] = reader.needed("expert_ffn_hidden_size" if own_width else "ffn_hidden_size")
    if numbers["top_k"] > numbers["num_experts"]:
        reader.fault(reader.key_of("top_k"), f"{numbers['top_k']} experts per token of {numbers['num_experts']}", f"1 to {numbers['num_experts']}")
    shared, width = _shared_experts(reader, rule)
    groups, kept = _groups(reader, rule, numbers["num_experts"], numbers["top_k"])
    pattern = _pattern(reader, _sparse_layers(reader, rule, num_layers), num_layers)
    if pattern is None or reader.faults:
        return None
    first, step = pattern
    return MoE(**numbers, num_shared_experts=shared, shared_expert_ffn_hidden_size=width, first_dense_layers=first, layer_step=step,
               router_bias=bool(family.get("router_bias")), shared_expert_gate=bool(shared and family.get("shared_expert_gate")),
               num_groups=groups, top_groups=kept)


def _groups(reader: ConfigReader, rule: str, num_experts: int, top_k: int) -> tuple[int, int]:
    """Groups of experts, and in how many of them a token's experts lie at most: DeepSeek's routers keep to few."""
    if rule != "deepseek" or not (reader.has("expert_groups") and reader.has("top_expert_groups")):
        return 1, 1
    groups, kept = reader.whole("expert_groups") or 1, reader.whole("top_expert_groups") or 1
    if num_experts % groups:
        reader.fault(reader.key_of("expert_groups"), f"{num_experts} experts do not divide into {groups} groups", f"a divisor of {num_experts}")
    elif kept > groups or top_k * groups > kept * num_experts:
        reader.fault(reader.key_of("top_expert_groups"), f"{top_k} experts per token in {kept} of {groups} groups",
                     f"1 to {groups}, with {top_k} experts among them")
    return groups, kept


def _shared_experts(reader: ConfigReader, rule: str) -> tuple[int, int | None]:
    """How many shared experts, and their width together where the file states one."""
    if rule == "llama4":
        return 1, reader.needed("ffn_hidden_size")
    if rule == "deepseek":
        return reader.whole("num_shared_experts") or 0, None
    width = reader.whole("shared_expert_ffn_hidden_size") or 0
    return (1, width) if width else (0, None)


def _sparse_layers(reader: ConfigReader, rule: str, num_layers: int) -> set[int]:
    kinds = reader.words("mlp_layer_types", num_layers)
    if kinds is not None:
        return {i for i, kind in enumerate(kinds) if kind == "sparse"}
    frequency = reader.config.get("moe_layer_freq")
    if isinstance(frequency, list):
        if len(frequency) != num_layers:
            reader.fault("moe_layer_freq", f"{len(frequency)} entries for {num_layers} layers", "a whole number, or one entry per layer")
        return {i for i, f in enumerate(frequency) if f}
    step = (reader.whole("layer_step") or 1) if reader.has("layer_step") else 1
    if rule == "deepseek":
        first = (reader.whole("first_dense_layers") or 0) if reader.has("first_dense_layers") else 0
        return {i for i in range(first, num_layers) if i % step == 0}
    sparse = set(range(step - 1, num_layers, step))
    for key, keep in (("moe_layers", True), ("mlp_only_layers", False)):
        named = reader.config.get(key)
        if named is None or (named == [] and keep):
            continue
        if not isinstance(named, list) or not all(isinstance(i, int) and 0 <= i < num_layers for i in named):
            reader.fault(key, "this is no list of layers", f"layer numbers from 0 to {num_layers - 1}")
        else:
            sparse = set(named) if keep else sparse - set(named)
    return sparse


def _pattern(reader: ConfigReader, sparse: set[int], num_layers: int) -> tuple[int, int] | None:
    """(first dense layers, step) that give exactly these layers experts; None where no layer has any."""
    if reader.faults or not sparse:
        return None
    ordered = sorted(sparse)
    step = ordered[1] - ordered[0] if len(ordered) > 1 else 1
    first = ordered[0] - (step - 1)
    if first >= 0 and ordered == list(range(ordered[0], num_layers, step)):
        return first, step
    key = next((k for k in ("mlp_layer_types", "moe_layer_freq", "moe_layers", "mlp_only_layers") if reader.config.get(k)), "first_k_dense_replace")
    raise _not_covered(reader, key, "experts in layers that are not evenly spaced")
