"""Bytes on one GPU: weights, gradients, optimizer state, activations, logits, buffers, and what the device leaves for them.

Counted tensor by tensor, as Megatron-LM with Transformer Engine, FSDP2 and DeepSpeed allocate them; papers' formulas stand in `memory_published.py`.
Symbols: T tokens, b sequences on one GPU, h hidden, a heads, q and kv the widths of queries and of keys (or values), f feed-forward width, V
vocabulary, t tensor parallel degree, r = 1 / t under sequence parallelism, else 1, l bytes of a kept product input: 2, in fp8 and nvfp4 1.
Everything in 16 bit unless said otherwise; twice that in fp32.
"""
from dataclasses import dataclass

from solver.cost.alike import by_name, larger, smaller, where
from solver.cost.experts import routed_tokens
from solver.cost.layer import head_widths, local_kv_heads, score_elements
from solver.cost.machine import Machine
from solver.cost.setting import Setting
from solver.cost.share import Share
from solver.domain.degrees import Framework, Recompute
from solver.domain.model import LayerClass

LOW = ("fp8", "nvfp4")


def state_parts(zero_stage: int, shards: float, gradient_bytes: float, optimizer_bytes: float, weight_bytes: float) -> tuple[float, float, float]:
    """(weights, gradients, optimizer) bytes per parameter: ZeRO-1 shards the optimizer, 2 the gradients, 3 the weights too."""
    return (weight_bytes / where(zero_stage >= 3, shards, 1.0), gradient_bytes / where(zero_stage >= 2, shards, 1.0),
            optimizer_bytes / where(zero_stage >= 1, shards, 1.0))


def state_elements(setting: Setting, zero_stage: int, framework: Framework | None) -> tuple[float, float, float]:
    """(gradient, optimizer, weight) bytes per parameter before sharding, as the framework keeps them.

    DeepSpeed accumulates in fp32 beside 16-bit gradients: 2 more. FSDP's shards are the fp32 master weights, 4 and 8 in place of 2 and 12: no 16-bit
    copy outlives the layer that it is gathered for.
    """
    stack, weight = setting.constants.memory.stack(framework), setting.activation_element
    gradient, optimizer = setting.gradient_element, setting.optimizer_state_bytes
    if stack.both_gradients and gradient > weight:
        gradient += weight
    if stack.weights_are_master and weight < 4.0:
        return gradient, where(zero_stage >= 3, max(0.0, optimizer - 4.0), optimizer), where(zero_stage >= 3, 4.0, weight)
    return gradient, optimizer, weight


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Activation bytes that one layer keeps per micro-batch in flight, and what lives beside them while it runs backward."""

    kept: float
    working: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTensors:
    """What one layer keeps without recompute, by what a recompute mode may drop. `short` lives only while the layer runs backward."""

    norms: float
    inputs: float
    masks: float
    attention: float
    scores: float
    ffn: float
    short: float

    @property
    def kept(self) -> float:
        return self.norms + self.inputs + self.masks + self.attention + self.scores + self.ffn


def activation_bytes(setting: Setting, layer_class: LayerClass, share: Share, recompute: Recompute, selective_memory: float) -> LayerBytes:
    """Activations of one layer on one GPU.

    none keeps all of `layer_tensors`; full the layer's input, 2 T h r; partial all but norms, activation and first matrix; selective all but the
    scores of an unfused kernel, or a share of everything where the stack checkpoints whole operators. What is computed again is `working` memory,
    beside the gradients of the layer that runs backward.
    """
    scale = setting.activation_element / 2.0
    tensors = layer_tensors(setting, layer_class, share)
    everything, short = tensors.kept * scale, tensors.short * scale

    def held(mode: Recompute) -> tuple[float, float]:
        again = 0.0
        if mode == "full":
            boundary = 2.0 * share.tokens * setting.model.hidden_size * share.replicated * scale
            return smaller(boundary, everything), short + everything
        if mode == "partial":
            again = (tensors.norms + tensors.ffn) * scale
        elif mode == "selective" and selective_memory < 1.0:
            again = everything * (1.0 - selective_memory)
        elif mode == "selective" and share.kernel == "unfused":
            again = tensors.scores * scale
        return everything - again, short + again

    kept, working = by_name(recompute, held)
    by = setting.constants.memory.held                     # of what the formulas say, what the allocator holds: other than 1 only if calibrated
    return LayerBytes(kept=by * kept, working=by * working)


def layer_tensors(setting: Setting, layer_class: LayerClass, share: Share) -> LayerTensors:
    """(4 + 2 l + 2) T h r + T (2 (q + 2 kv) + l q) / t + scores + T f (2 or, gated, 4 + l) / t, and 4 T h + T f (2 or 4) / t for a short time.

    The 4 are the inputs of both norms (eager RMSNorm: fp32 input and 16-bit normalised copy, 12), the 2 one byte for each of two dropouts. Short: a
    gathered input and its gradient, which sequence parallelism does not divide, and the gradient of the first matrix's output. Cross-attention keeps
    as much again as self-attention, with a norm and an input (the encoder's output is counted where the decoder begins). Without dropout and
    gated this is s b (12 h + 4 kv + 6 f) / t, with it and plain s b h 34 / t: the published formulas.
    """
    model, constants = setting.model, setting.constants.memory
    low = 1.0 if setting.workload.precision in LOW else 2.0
    residual = share.tokens * model.hidden_size * share.replicated
    blocks = 1.0 + layer_class.cores                       # attention and feed-forward: a norm, a product's input and a dropout each
    attention, scores, gradient = _attention(setting, share, low) if blocks > 1.0 else (0.0, 0.0, 0.0)
    inputs, ffn, first = _feed_forward(setting, layer_class, share, low)
    return LayerTensors(
        norms=(constants.eager_norm_bytes if share.eager_norm else constants.norm_bytes) / 2.0 * blocks * residual,
        inputs=low * (blocks - 1.0) * residual + inputs, masks=blocks * residual if has_dropout(setting, share) else 0.0,
        attention=layer_class.cores * attention, scores=layer_class.cores * scores, ffn=ffn,
        short=constants.temporary_bytes * share.tokens * model.hidden_size + gradient + first)


def has_dropout(setting: Setting, share: Share) -> bool:
    """Requests do not state dropout: models that are not gated, GPT's kin, train with it where the framework's default is so; fp8 recipes do not."""
    return setting.constants.memory.stack(share.framework).dropout and not setting.model.gated_ffn and setting.workload.precision not in LOW


def _attention(setting: Setting, share: Share, low: float) -> tuple[float, float, float]:
    """(queries, keys, values, output; scores or the fp32 softmax statistics of a fused kernel; gradient of scores).

    Latent attention keeps its compressed queries and keys before and after their norms. Eager code keeps the packed projection alive through its view
    of the values, beside the rotated queries and keys. Flash attention 1 and 2 give [b, s, h]: frameworks that keep [s, b, h] copy it where b > 1.
    Scores, b a s^2 / t: the softmax, 2, with dropout its mask and output, 3 more (the published 5 a s / h); eager softmax in fp32 with a 16-bit
    copy, 6.
    """
    model, constants, tokens = setting.model, setting.constants.memory, share.tokens
    qk, v = head_widths(model)
    heads = model.num_attention_heads / share.tp
    kv_heads = heads if model.mla is not None else local_kv_heads(model, share.tp)
    kept = tokens * (2.0 * (heads * qk + kv_heads * (qk + v)) + low * heads * v)
    if model.mla is not None:
        kept += 4.0 * tokens * share.replicated * ((model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank)
    if share.eager_norm:
        kept += 2.0 * tokens * (heads + kv_heads) * qk
    if share.kernel != "unfused":
        copied = constants.stack(share.framework).sequence_first and share.kernel in ("flash_1", "flash_2")
        return kept + (where(share.sequences > 1.0, 2.0 * tokens * heads * v, 0.0) if copied else 0.0), 4.0 * tokens * heads, 0.0
    each = constants.eager_score_bytes if share.eager_norm else constants.score_bytes
    each += constants.score_dropout_bytes if has_dropout(setting, share) else 0.0
    scores = score_elements(share, heads)
    return kept, each * scores, (constants.eager_score_gradient_bytes if share.eager_norm else constants.score_bytes) * scores


def _feed_forward(setting: Setting, layer_class: LayerClass, share: Share, low: float) -> tuple[float, float, float]:
    """(input of the first matrix; its output and the input of the second; gradient of its output).

    Eager gated units keep the activated gate too, 2 f more. Experts: `experts.routed_tokens`, on the busiest rank of an expert group
    `expert_imbalance` times as many; the router's input stays in 16 bit, and routing keeps `router_bytes` per token and expert.
    """
    model, constants = setting.model, setting.constants.memory
    inner = 2.0 if model.gated_ffn else 1.0
    per_width = 2.0 * inner + low + (2.0 if share.eager_norm else 0.0)
    residual = share.tokens * model.hidden_size * share.replicated
    if not layer_class.moe or model.moe is None:
        width = share.tokens * model.ffn_hidden_size / share.tp
        return low * residual, per_width * width, 2.0 * inner * width
    moe = model.moe
    routed = routed_tokens(model, share) * where(share.ep > 1, constants.expert_imbalance, 1.0)
    width = routed * moe.expert_ffn_hidden_size / share.etp + share.tokens * moe.shared_width / share.tp
    routing = constants.router_bytes * share.tokens * moe.num_experts * share.replicated
    return (2.0 * residual + low * routed * model.hidden_size + routing, per_width * width,
            2.0 * inner * width + 4.0 * routed * model.hidden_size)


def logits_bytes(setting: Setting, share: Share, vocabulary_parallel_loss: bool) -> float:
    """Logits of one micro-batch on the last stage, by the framework's loss.

    Vocabulary-parallel, 6 T V / t: 16-bit logits, and the fp32 softmax that becomes their gradient. PyTorch's own, 14 T V: 16-bit logits, their fp32
    copy, log-softmax and two fp32 gradients; on gathered logits 12 T V more, to gather them from t ranks. Each multi-token-prediction module keeps a
    softmax until its backward, 4 T V / t. These terms decided most out-of-memory outcomes of published sweeps.
    """
    constants, size = setting.constants.memory, share.tokens * setting.model.vocab_size
    if not vocabulary_parallel_loss:
        return (constants.gathered_logit_bytes + where(share.tp > 1, constants.gathered_logit_copies, 0.0)) * size
    return (constants.stack(share.framework).logit_bytes + constants.softmax_bytes * setting.model.mtp_layers) * size / share.tp


def logits_make_room(setting: Setting, share: Share, vocabulary_parallel_loss: bool) -> bool:
    """Whether logits are freed before the layers run backward, whose short-lived tensors then reuse their bytes."""
    return vocabulary_parallel_loss and setting.constants.memory.stack(share.framework).logits_freed


def workspace_bytes(setting: Setting, machine: Machine) -> float:
    """What matrix-product libraries keep in the allocator for good: a cuBLAS workspace for the forward and for the backward thread, one of
    Transformer Engine, and four more of that for the grouped products of experts."""
    constants = setting.constants.memory
    fused = constants.fused_workspace_bytes.get(machine.arch.name, constants.fused_workspace_bytes["default"])
    return 2.0 * constants.workspace_bytes + fused * (5.0 if setting.model.moe is not None else 1.0)


def allocator_capacity_bytes(setting: Setting, device_bytes: float, active_dimensions: int) -> float:
    """What the allocator may hold: the device less context and communication buffers, and less fragmentation."""
    constants = setting.constants.memory
    left = device_bytes - constants.context_bytes - constants.dimension_bytes * active_dimensions
    return larger(0.0, left) / (1.0 + constants.fragmentation)
