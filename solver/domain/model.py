"""What is trained: the shape of a model, by layer.

A layer index counts decoder layers from 0 (in an encoder-decoder: encoder layers, then decoder layers).
"""
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le, Len

from solver.domain.bounds import MAX_LAYERS, PYDANTIC, Count, Index, Label, Size, refuse_bad_values
from solver.errors import Fault, InputError

ModelKind = Literal["decoder", "encoder_decoder", "diffusion", "dlrm", "vision", "layers"]
LayerType = Literal["full_attention", "sliding_attention", "linear_attention", "chunked_attention", "mamba", "mlp_only"]
QKNorm = Literal["none", "head", "projection"]             # norm of queries and keys: shared by the heads, or over all heads at once


@dataclass(frozen=True, slots=True, kw_only=True)
class MoE:
    """Mixture of experts in the feed-forward part. Widths are of one expert."""

    __pydantic_config__ = PYDANTIC
    num_experts: Annotated[int, Ge(1), Le(65_536)]
    top_k: Annotated[int, Ge(1), Le(1024)]
    expert_ffn_hidden_size: Size
    num_shared_experts: Annotated[int, Ge(0), Le(1024)] = 0
    shared_expert_ffn_hidden_size: Size | None = None    # width of all shared experts together; default: num_shared_experts * expert width
    first_dense_layers: Annotated[int, Ge(0), Le(MAX_LAYERS)] = 0
    layer_step: Annotated[int, Ge(1), Le(64)] = 1          # every layer_step-th layer (after the first dense ones) has experts
    router_bias: bool = False                              # one bias or score correction per expert
    shared_expert_gate: bool = False                       # a learned gate on the shared experts (Qwen2-MoE)
    num_groups: Annotated[int, Ge(1), Le(65_536)] = 1      # equal groups of experts; a token's experts lie in at most top_groups of them
    top_groups: Annotated[int, Ge(1), Le(65_536)] = 1

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        if self.top_k > self.num_experts:
            raise InputError(Fault(pointer="/top_k", message=f"{self.top_k} experts per token of {self.num_experts}",
                                   legal=f"1 to {self.num_experts}"))
        if self.num_experts % self.num_groups:
            raise InputError(Fault(pointer="/num_groups", message=f"{self.num_experts} experts do not divide into {self.num_groups} groups",
                                   legal=f"a divisor of {self.num_experts}"))
        if not self.top_k * self.num_groups <= self.top_groups * self.num_experts or self.top_groups > self.num_groups:
            raise InputError(Fault(pointer="/top_groups", message=f"{self.top_k} experts per token in {self.top_groups} of {self.num_groups} groups",
                                   legal=f"1 to {self.num_groups}, with {self.top_k} experts among them"))

    @property
    def shared_width(self) -> int:
        """Feed-forward width of all shared experts of a layer together."""
        if self.num_shared_experts == 0:
            return 0
        return self.shared_expert_ffn_hidden_size or self.num_shared_experts * self.expert_ffn_hidden_size


@dataclass(frozen=True, slots=True, kw_only=True)
class MLA:
    """Multi-head latent attention (DeepSeek): low-rank projections of queries and keys/values."""

    __pydantic_config__ = PYDANTIC
    q_lora_rank: Index | None = None                       # null: queries are projected directly
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A model by its dimensions. `head_dim` defaults to hidden_size / heads, `num_kv_heads` to the number of heads.

    An encoder-decoder has `num_layers` layers in all: `num_encoder_layers` (default: half) of the encoder, then those of the decoder.
    """

    __pydantic_config__ = PYDANTIC
    kind: ModelKind = "decoder"
    name: Label = "model"
    num_layers: Annotated[int, Ge(1), Le(MAX_LAYERS)]
    num_encoder_layers: Annotated[int, Ge(1), Le(MAX_LAYERS)] | None = None      # of an encoder-decoder alone
    hidden_size: Annotated[int, Ge(1), Le(1_000_000)]
    ffn_hidden_size: Size
    gated_ffn: bool = True
    num_attention_heads: Annotated[int, Ge(1), Le(65_536)]
    num_kv_heads: Annotated[int, Ge(1), Le(65_536)] | None = None
    head_dim: Annotated[int, Ge(1), Le(65_536)] | None = None
    vocab_size: Annotated[int, Ge(1), Le(100_000_000)]
    tied_embeddings: bool = False
    moe: MoE | None = None
    mla: MLA | None = None
    layer_types: Annotated[tuple[LayerType, ...], Len(1, MAX_LAYERS)] | None = None
    sliding_window: Size | None = None                     # tokens that a layer of sliding (or chunked) attention sees
    relative_position_buckets: Size | None = None          # of T5's learned bias per head: one table for the encoder, one for the decoder
    relative_positions_by_layer: bool = False              # a table in every layer instead (umT5)
    max_position_embeddings: Size | None = None            # only where positions are learned (GPT-2): counts as parameters
    attention_bias: bool = False                           # on queries, keys and values; on the output projection too unless the next says otherwise
    attention_output_bias: bool | None = None
    attention_sinks: bool = False                          # one learned logit per head (gpt-oss)
    qk_norm: QKNorm = "none"
    ffn_bias: bool = False
    norm_bias: bool = False                                # LayerNorm with bias; else RMSNorm, weights only
    norms_per_layer: Annotated[int, Ge(0), Le(8)] = 2      # norms of hidden_size width: 1 where attention and FFN share theirs, 4 in Gemma 2
    output_bias: bool = False                              # on the output layer
    mtp_layers: Annotated[int, Ge(0), Le(64)] = 0          # multi-token-prediction layers after the last

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        faults = []
        if self.num_kv_heads is not None and self.num_attention_heads % self.num_kv_heads:
            faults.append(Fault(pointer="/num_kv_heads", message=f"{self.num_attention_heads} heads do not divide into {self.num_kv_heads} KV heads",
                                legal=f"a divisor of {self.num_attention_heads}"))
        if self.head_dim is None and self.mla is None and self.hidden_size % self.num_attention_heads:
            faults.append(Fault(pointer="/num_attention_heads",
                                message=f"hidden_size {self.hidden_size} is no multiple of {self.num_attention_heads} heads",
                                legal="a divisor of hidden_size, or head_dim given"))
        if self.layer_types is not None and len(self.layer_types) != self.num_layers:
            faults.append(Fault(pointer="/layer_types", message=f"{len(self.layer_types)} types for {self.num_layers} layers", legal="one per layer"))
        if self.moe is not None and self.moe.first_dense_layers > self.num_layers:
            faults.append(Fault(pointer="/moe/first_dense_layers", message=f"{self.moe.first_dense_layers} of {self.num_layers} layers",
                                legal=f"0 to {self.num_layers}"))
        if self.layer_types is not None and "sliding_attention" in self.layer_types and self.sliding_window is None:
            faults.append(Fault(pointer="/sliding_window", message="sliding_attention layers need a window", legal="a number of tokens"))
        faults += self._encoder_faults()
        if faults:
            raise InputError(*faults)

    def _encoder_faults(self) -> list[Fault]:
        if self.kind != "encoder_decoder":
            return [] if self.num_encoder_layers is None else [
                Fault(pointer="/num_encoder_layers", message=f"a model of kind {self.kind} has no encoder", legal="kind encoder_decoder")]
        faults = []
        if self.num_layers < 2 or not 0 < self.encoder_layers < self.num_layers:
            faults.append(Fault(pointer="/num_encoder_layers", message=f"{self.encoder_layers} of {self.num_layers} layers",
                                legal="at least one layer of the encoder and one of the decoder"))
        for name in ("mla", "layer_types", "mtp_layers", "moe"):
            if getattr(self, name):
                faults.append(Fault(pointer=f"/{name}", message=f"encoder-decoders with {name} are not described", legal="leave it out"))
        return faults

    @property
    def encoder_layers(self) -> int:
        """Layers of the encoder, which come first; 0 in a decoder."""
        if self.kind != "encoder_decoder":
            return 0
        return self.num_layers // 2 if self.num_encoder_layers is None else self.num_encoder_layers

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads if self.num_kv_heads is not None else self.num_attention_heads

    @property
    def head_width(self) -> int:
        return self.head_dim if self.head_dim is not None else self.hidden_size // self.num_attention_heads

    def is_moe_layer(self, layer: int) -> bool:
        """Whether decoder layer `layer` (from 0) holds experts."""
        if self.moe is None or layer < self.moe.first_dense_layers:
            return False
        return (layer - self.moe.first_dense_layers) % self.moe.layer_step == self.moe.layer_step - 1 if self.moe.layer_step > 1 else True

    def layer_type(self, layer: int) -> LayerType:
        return self.layer_types[layer] if self.layer_types is not None else "full_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerClass:
    """What makes two layers cost the same: their attention, whether they hold experts, and which layer's own measurements stand for them.

    causal: a token attends to those before it alone (decoders). cross_attention: it attends to the encoder's output too. entry: the first layer of an
    encoder-decoder's decoder, with the token embedding of the decoder (a copy) and the encoder's final norm.
    """

    attention: LayerType
    moe: bool
    causal: bool = True
    cross_attention: bool = False
    entry: bool = False
    measured_as: int | None = None                         # index of the layer whose profile rows these layers run by; None: no rows of their own

    @property
    def label(self) -> str:
        return f"{self.attention}{'+moe' if self.moe else ''}{'' if self.causal else '+encoder'}{'+cross' if self.cross_attention else ''}"

    @property
    def cores(self) -> int:
        """Attention cores, each with projections of its own: none, self-attention, or cross-attention too."""
        return 0 if self.attention == "mlp_only" else 2 if self.cross_attention else 1


def layer_classes(model: Architecture) -> tuple[LayerClass, ...]:
    """The class of every layer, in order."""
    encoder = model.encoder_layers
    return tuple(LayerClass(attention=model.layer_type(i), moe=model.is_moe_layer(i), causal=i >= encoder, cross_attention=0 < encoder <= i,
                            entry=0 < encoder == i) for i in range(model.num_layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """Consecutive layers of one class: [first, last] inclusive."""

    first: Index
    last: Index
    layer_class: LayerClass

    @property
    def count(self) -> Count:
        return self.last - self.first + 1


def layer_runs(model: Architecture) -> tuple[LayerRun, ...]:
    """The model's layers as runs of one class each, in order."""
    runs: list[LayerRun] = []
    for i, cls in enumerate(layer_classes(model)):
        if runs and runs[-1].layer_class == cls:
            runs[-1] = LayerRun(first=runs[-1].first, last=i, layer_class=cls)
        else:
            runs.append(LayerRun(first=i, last=i, layer_class=cls))
    return tuple(runs)
