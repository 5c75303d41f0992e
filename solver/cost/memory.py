"""Bytes on one GPU: weights, gradients, optimizer state, activations, logits, buffers, and what the device leaves for them.

The `*_bytes_published` functions are the formulas of the papers, kept as oracles. What is priced is `activation_bytes`: the same count, with the
terms that decided published out-of-memory outcomes (eager norms, unfused scores, fp8 inputs).
"""
from dataclasses import dataclass

from solver.cost.experts import routed_tokens
from solver.cost.layer import head_widths, local_kv_heads, score_elements
from solver.cost.setting import Setting
from solver.cost.share import Share
from solver.domain.degrees import Recompute
from solver.domain.model import LayerClass


def transformer_layer_bytes_published(seq_len: int, sequences: int, hidden: int, heads: int, tp: int = 1, sequence_parallel: bool = False,
                                      selective: bool = False) -> float:
    """Activations of a GPT layer with dropout, 16 bit: s b h (34 + 5 a s / h); under t: s b h (10 + 24 / t + 5 a s / (h t)); with sequence
    parallelism all / t.

    Selective recompute or flash attention removes the 5 a s / h. Source: Korthikanti et al. 2022 (arXiv 2205.05198), equations 1 to 4.
    """
    unit = float(seq_len * sequences * hidden)
    scores = 0.0 if selective else 5.0 * heads * seq_len / hidden
    if sequence_parallel:
        return unit * (34.0 + scores) / tp
    return unit * (10.0 + 24.0 / tp + scores / tp)


def gated_layer_bytes_published(seq_len: int, sequences: int, hidden: int, kv_width: int, ffn: int, top_k: int = 1, shards: int = 1,
                                fused: bool = True) -> float:
    """Activations of a gated (Llama) layer under flash attention and sequence parallelism: s b (12 h + 4 kv + 6 f top_k) / (t c); 8 f unfused.

    kv is the width of the keys. Source: SlimPipe (arXiv 2504.14519).
    """
    return seq_len * sequences * (12.0 * hidden + 4.0 * kv_width + (6.0 if fused else 8.0) * ffn * top_k) / shards


def recomputed_layer_bytes_published(seq_len: int, sequences: int, hidden: int, kv_width: int, shards: int = 1) -> float:
    """The same with norms, activation and first matrix recomputed: s b (8 h + 4 kv) / (t c). Source: SlimPipe (arXiv 2504.14519)."""
    return seq_len * sequences * (8.0 * hidden + 4.0 * kv_width) / shards


def state_bytes_per_parameter(zero_stage: int, shards: float, gradient_bytes: float = 4.0, optimizer_bytes: float = 12.0,
                              weight_bytes: float = 2.0) -> float:
    """Weights, gradients and optimizer state per parameter: ZeRO-1 with fp32 gradients 6 + 12 / d; ZeRO-2 4 + ... / d; ZeRO-3 all / d."""
    return sum(state_parts(zero_stage, shards, gradient_bytes, optimizer_bytes, weight_bytes))


def state_parts(zero_stage: int, shards: float, gradient_bytes: float, optimizer_bytes: float, weight_bytes: float) -> tuple[float, float, float]:
    """(weights, gradients, optimizer) bytes per parameter: ZeRO-1 shards the optimizer, 2 the gradients, 3 the weights too."""
    return (weight_bytes / (shards if zero_stage >= 3 else 1.0), gradient_bytes / (shards if zero_stage >= 2 else 1.0),
            optimizer_bytes / (shards if zero_stage >= 1 else 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Activation bytes that one layer keeps per micro-batch in flight, and the buffer that it needs while it runs."""

    kept: float
    working: float


def activation_bytes(setting: Setting, layer_class: LayerClass, share: Share, recompute: Recompute, selective_memory: float) -> LayerBytes:
    """Activations of one layer on one GPU.

    Without recompute T [(n + 2 l) h r + (2 (q + 2 kv) + l q) / t + (4 + l) f / t] where gated, (2 + l) f / t where not; n: norms (4, eager 12), l:
    bytes of a kept GEMM input (2; 1 in fp8), r: 1 or 1 / t. Fused attention keeps 4 b a s / t more, unfused 8 b a s^2 / t.
    """
    constants, scale = setting.constants.memory, setting.activation_element / 2.0
    parts = _parts(setting, layer_class, share)
    everything = sum(parts.values()) * scale
    boundary = 2.0 * share.tokens * setting.model.hidden_size * share.replicated * scale
    temporary = constants.temporary_bytes * share.tokens * setting.model.hidden_size * share.replicated * scale
    if recompute == "full":
        return LayerBytes(kept=min(boundary, everything), working=temporary + constants.working_set_layers * everything)
    if recompute == "partial":
        again = (parts["norms"] + parts["ffn"]) * scale
        return LayerBytes(kept=everything - again, working=temporary + constants.working_set_layers * again)
    if recompute == "selective":
        if selective_memory < 1.0:
            return LayerBytes(kept=everything * selective_memory, working=temporary + everything * (1.0 - selective_memory))
        again = parts["scores"] * scale if share.kernel == "unfused" else 0.0
        return LayerBytes(kept=everything - again, working=temporary + again)
    return LayerBytes(kept=everything, working=temporary)


def _parts(setting: Setting, layer_class: LayerClass, share: Share) -> dict[str, float]:
    model, constants = setting.model, setting.constants.memory
    tokens, h, t = share.tokens, model.hidden_size, share.tp
    kept = 1.0 if setting.workload.precision in ("fp8", "nvfp4") else 2.0
    norms = (constants.eager_norm_bytes if share.eager_norm else constants.norm_bytes) * tokens * h * share.replicated
    inputs = 2.0 * kept * tokens * h * share.replicated
    attention = scores = 0.0
    if layer_class.attention != "mlp_only":
        qk, v = head_widths(model)
        heads = model.num_attention_heads / t
        key_values = (heads if model.mla is not None else local_kv_heads(model, t)) * (qk + v)
        attention = tokens * (2.0 * (heads * qk + key_values) + kept * heads * v)
        scores = 4.0 * tokens * heads if share.kernel != "unfused" else constants.unfused_score_bytes * score_elements(share, heads)
    per_width = (4.0 if model.gated_ffn else 2.0) + kept
    if layer_class.moe and model.moe is not None:
        moe = model.moe
        ffn = per_width * (routed_tokens(model, share) * moe.expert_ffn_hidden_size / share.etp + tokens * moe.shared_width / t)
        inputs += kept * tokens / t * moe.top_k * h
    else:
        ffn = per_width * tokens * model.ffn_hidden_size / t
    return {"norms": norms, "inputs": inputs, "attention": attention, "scores": scores, "ffn": ffn}


def logits_bytes(setting: Setting, share: Share, vocabulary_parallel_loss: bool) -> float:
    """Logits of one micro-batch on the last stage: 7 T V / t; 14 T V where the loss is not vocabulary-parallel, and 12 T V more to gather them from t
    ranks.

    This one term decided most out-of-memory outcomes of published sweeps.
    """
    constants, size = setting.constants.memory, share.tokens * setting.model.vocab_size
    if vocabulary_parallel_loss:
        return constants.logit_bytes * size / share.tp
    return (constants.gathered_logit_bytes + (constants.gathered_logit_copies if share.tp > 1 else 0.0)) * size


def allocator_capacity_bytes(setting: Setting, device_bytes: float, active_dimensions: int) -> float:
    """What the allocator may hold: the device less context and communication buffers, and less fragmentation."""
    constants = setting.constants.memory
    left = device_bytes - constants.context_bytes - constants.dimension_bytes * active_dimensions
    return max(0.0, left) / (1.0 + constants.fragmentation)
