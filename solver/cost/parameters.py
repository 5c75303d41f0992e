"""Parameter counts, from the dimensions alone.

Symbols: h hidden, a heads, k KV heads, d head width, f FFN width, V vocabulary, E experts, r_q and r_kv the low ranks of latent attention.
Every weight counts once: tied embeddings once, MTP layers included. Counts are of the whole model, before any sharding.
"""
from dataclasses import dataclass, fields
from functools import lru_cache

from solver.domain.estimate import ModelFacts
from solver.domain.model import MLA, Architecture, LayerClass, layer_runs
from solver.errors import Fault, NotCovered

MODELS_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParameters:
    """Parameters of one layer, by part. `experts` are all routed experts together; norms and router are replicated under tensor parallelism."""

    attention: int = 0
    mlp: int = 0
    experts: int = 0
    shared_experts: int = 0
    router: int = 0
    norms: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, f.name) for f in fields(self))


def layer_parameters(model: Architecture, layer_class: LayerClass) -> LayerParameters:
    """Parameters of one layer of a class: attention, and a dense FFN or router, routed and shared experts, and norms.

    Cross-attention has projections and a norm of its own. The first decoder layer of an encoder-decoder counts the encoder's final norm.

    Source: the public reference implementations of each family. Wrong for attention that is neither softmax nor latent, which is refused.
    """
    if layer_class.attention in ("linear_attention", "mamba"):
        raise NotCovered(Fault(pointer="/layer_types", message=f"the parameters of {layer_class.attention} layers are not counted yet",
                               legal="full_attention, sliding_attention, chunked_attention, mlp_only"))
    norms = _norms(model, layer_class.cores > 0)
    attention = layer_class.cores * _attention(model)
    norms += layer_class.cross_attention * per_norm(model) + layer_class.entry * final_parameters(model)
    if not layer_class.moe or model.moe is None:
        return LayerParameters(attention=attention, mlp=ffn_parameters(model, model.ffn_hidden_size), norms=norms)
    moe = model.moe
    return LayerParameters(
        attention=attention,
        experts=moe.num_experts * ffn_parameters(model, moe.expert_ffn_hidden_size),
        shared_experts=_shared_experts(model),
        router=model.hidden_size * moe.num_experts + (moe.num_experts if moe.router_bias else 0),
        norms=norms,
    )


def ffn_parameters(model: Architecture, width: int) -> int:
    """One feed-forward block: 2 h f, or 3 h f where gated; biases f per inner matrix and h on the last."""
    inner = 2 if model.gated_ffn else 1
    weights = (inner + 1) * model.hidden_size * width
    return weights + (inner * width + model.hidden_size if model.ffn_bias else 0)


def _shared_experts(model: Architecture) -> int:
    if model.moe is None or model.moe.shared_width == 0:
        return 0
    return ffn_parameters(model, model.moe.shared_width) + (model.hidden_size if model.moe.shared_expert_gate else 0)


def _attention(model: Architecture) -> int:
    if model.mla is not None:
        return _latent_attention(model, model.mla)
    h, queries, keys = model.hidden_size, model.num_attention_heads * model.head_width, model.kv_heads * model.head_width
    biases = (queries + 2 * keys if model.attention_bias else 0) + (h if _output_bias(model) else 0)
    return h * (queries + 2 * keys) + queries * h + biases + (model.num_attention_heads if model.attention_sinks else 0)


def _latent_attention(model: Architecture, mla: MLA) -> int:
    """h r_q + r_q a (n + p) + h (r_kv + p) + r_kv a (n + v) + a v h, with n, p, v the widths of the unrotated, rotated and value parts of a head.

    Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1 and its public implementation; biases sit on the two down-projections and the output.
    """
    h, heads = model.hidden_size, model.num_attention_heads
    key_width = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    rank = mla.q_lora_rank or 0
    queries = h * rank + rank * heads * key_width if rank else h * heads * key_width
    down = mla.kv_lora_rank + mla.qk_rope_head_dim
    keys_values = h * down + mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    biases = (rank + down if model.attention_bias else 0) + (h if _output_bias(model) else 0)
    return queries + keys_values + heads * mla.v_head_dim * h + biases


def _output_bias(model: Architecture) -> bool:
    return model.attention_bias if model.attention_output_bias is None else model.attention_output_bias


def per_norm(model: Architecture) -> int:
    """One norm of hidden width."""
    return model.hidden_size * (2 if model.norm_bias else 1)


def _norms(model: Architecture, with_attention: bool) -> int:
    if not with_attention:
        return per_norm(model) * max(1, model.norms_per_layer // 2)
    inner = (model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank if model.mla is not None else 0
    if model.qk_norm == "head":
        inner += 2 * model.head_width
    elif model.qk_norm == "projection":
        inner += (model.num_attention_heads + model.kv_heads) * model.head_width
    return per_norm(model) * model.norms_per_layer + inner


def embedding_parameters(model: Architecture) -> int:
    """Token embedding V h, and learned positions where the model has them: a table of vectors, or of biases per head (T5)."""
    tables = 0
    if model.relative_position_buckets is not None:
        tables = model.num_layers if model.relative_positions_by_layer else 2 if model.encoder_layers else 1
    biases = tables * (model.relative_position_buckets or 0) * model.num_attention_heads
    return (model.vocab_size + (model.max_position_embeddings or 0)) * model.hidden_size + biases


def head_parameters(model: Architecture) -> int:
    """Output layer V h beyond what it shares with the embedding: its weights count 0 when tied."""
    return (0 if model.tied_embeddings else model.vocab_size * model.hidden_size) + (model.vocab_size if model.output_bias else 0)


def final_parameters(model: Architecture) -> int:
    """The norm after the last layer."""
    return per_norm(model)


def mtp_parameters(model: Architecture) -> int:
    """Multi-token prediction: per module one layer like the last, a projection 2h to h, and three norms; embedding and output layer are shared.

    Source: DeepSeek-V3 (arXiv 2412.19437), section 2.2 and its public weights. Other families may differ in the norms.
    """
    return model.mtp_layers * (layer_parameters(model, _last_class(model)).total + _mtp_extra(model))


def _mtp_extra(model: Architecture) -> int:
    return 2 * model.hidden_size**2 + 3 * final_parameters(model)


def _last_class(model: Architecture) -> LayerClass:
    last = model.num_layers - 1
    return LayerClass(attention=model.layer_type(last), moe=model.is_moe_layer(last))


def idle_expert_parameters(model: Architecture, layer_class: LayerClass) -> int:
    """Parameters of the routed experts that one token does not pass in a layer: (E - top_k) experts."""
    if model.moe is None or not layer_class.moe:
        return 0
    return (model.moe.num_experts - model.moe.top_k) * ffn_parameters(model, model.moe.expert_ffn_hidden_size)


@lru_cache(maxsize=MODELS_KEPT)
def parameter_counts(model: Architecture) -> ModelFacts:
    """All parameters, and those that one token passes: every one but the routed experts it is not sent to (both embeddings count as passed)."""
    runs = [(run.layer_class, run.count) for run in layer_runs(model)]
    if model.mtp_layers:
        runs.append((_last_class(model), model.mtp_layers))
    layers = sum(count * layer_parameters(model, cls).total for cls, count in runs)
    total = layers + embedding_parameters(model) + head_parameters(model) + final_parameters(model) + model.mtp_layers * _mtp_extra(model)
    return ModelFacts(parameters=total, active_parameters=total - sum(count * idle_expert_parameters(model, cls) for cls, count in runs))
