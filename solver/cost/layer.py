"""The work of one layer on one GPU: matrix products, attention core, elementwise bytes, forward, backward and the share of weight gradients."""
from dataclasses import dataclass

from solver.cost.alike import larger
from solver.cost.experts import expert_elements, expert_work
from solver.cost.machine import Machine
from solver.cost.operators import QUERY_BLOCK, attention_flops, elementwise_s, fused_attention_s, gemm_s, score_area, visited_area
from solver.cost.setting import Setting
from solver.cost.share import Share
from solver.domain.model import Architecture, LayerClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Seconds of one layer's computation. `attention_*` are part of forward and backward; `first_matrix_s` is the FFN's first product."""

    forward_s: float
    backward_s: float
    weight_gradient_s: float
    attention_forward_s: float
    attention_backward_s: float
    first_matrix_s: float
    elementwise_forward_s: float


Gemm = tuple[float, float, float]                          # m, n, k of the forward product


def attention_gemms(model: Architecture, share: Share) -> list[Gemm]:
    """Forward products of the attention projections on one GPU: (tokens, columns, inner). KV heads fewer than t are replicated; so are the latent
    down-projections, each rank's on its own tokens under sequence parallelism (Megatron-Core)."""
    tokens, h, t = share.tokens, model.hidden_size, share.tp
    heads = model.num_attention_heads / t
    if model.mla is not None:
        mla = model.mla
        key = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        own = tokens * share.replicated
        query = [(own, mla.q_lora_rank, h), (tokens, heads * key, mla.q_lora_rank)] if mla.q_lora_rank else [(tokens, heads * key, h)]
        return [*query, (own, mla.kv_lora_rank + mla.qk_rope_head_dim, h),
                (tokens, heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank), (tokens, h, heads * mla.v_head_dim)]
    width = model.head_width
    return [(tokens, (heads + 2 * local_kv_heads(model, t)) * width, h), (tokens, h, heads * width)]


def cross_attention_gemms(model: Architecture, share: Share) -> list[Gemm]:
    """Forward products of cross-attention on one GPU: queries of the decoder's tokens, keys and values of as many of the encoder's, the output."""
    tokens, h, width = share.tokens, model.hidden_size, model.head_width
    heads = model.num_attention_heads / share.tp
    return [(tokens, heads * width, h), (tokens, 2 * local_kv_heads(model, share.tp) * width, h), (tokens, h, heads * width)]


def local_kv_heads(model: Architecture, tp: int) -> float:
    """KV heads on one GPU: k / t, at least one."""
    return larger(1.0, model.kv_heads / tp)


def head_widths(model: Architecture) -> tuple[int, int]:
    """(d_qk, d_v) of the attention core."""
    if model.mla is not None:
        return model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim, model.mla.v_head_dim
    return model.head_width, model.head_width


def projected_width(model: Architecture, tp: int) -> float:
    """q + 2 kv elements per token on one GPU."""
    qk, v = head_widths(model)
    heads = model.num_attention_heads / tp
    if model.mla is not None:
        return heads * (2 * qk + v)
    return heads * qk + 2 * local_kv_heads(model, tp) * v


def layer_work(setting: Setting, machine: Machine, layer_class: LayerClass, share: Share) -> Work:
    """One layer's computation: three products per matrix (forward, input gradient, weight gradient), the attention core, elementwise bytes."""
    model = setting.model
    ffn = dense_ffn_gemms(model, layer_class, share)
    products = (attention_gemms(model, share) if layer_class.cores else []) + ffn
    products += cross_attention_gemms(model, share) if layer_class.cross_attention else []
    experts = expert_work(setting, machine, layer_class, share)
    forward = sum(gemm_s(machine.linear, m, n, k) for m, n, k in products) + experts.forward_s
    first_s = sum(gemm_s(machine.linear, m, n, k) for m, n, k in ffn[:1]) + experts.first_matrix_s
    input_gradient = sum(gemm_s(machine.linear, m, k, n) for m, n, k in products) + experts.input_gradient_s
    weight_gradient = sum(gemm_s(machine.linear, k, n, m) for m, n, k in products) + experts.weight_gradient_s
    core_forward, core_backward = attention_core(setting, machine, layer_class, share) if layer_class.cores else (0.0, 0.0)
    elementwise = elementwise_s(elementwise_bytes(setting, layer_class, share), machine.elementwise_bytes_s)
    return Work(forward_s=forward + core_forward + elementwise,
                backward_s=input_gradient + weight_gradient + core_backward + elementwise * setting.constants.elementwise.backward,
                weight_gradient_s=weight_gradient, attention_forward_s=core_forward, attention_backward_s=core_backward,
                first_matrix_s=first_s, elementwise_forward_s=elementwise)


def dense_ffn_gemms(model: Architecture, layer_class: LayerClass, share: Share) -> list[Gemm]:
    """Forward products of the dense FFN, or of the shared experts of an expert layer, if any: first matrix, then second."""
    h, t, inner = model.hidden_size, share.tp, 2 if model.gated_ffn else 1
    experts = layer_class.moe and model.moe is not None
    width = model.moe.shared_width if experts and model.moe is not None else model.ffn_hidden_size
    f = width / t
    return [(share.tokens, inner * f, h), (share.tokens, h, f)] if width else []


def attention_core(setting: Setting, machine: Machine, layer_class: LayerClass, share: Share) -> tuple[float, float]:
    """Seconds (forward, backward) of softmax(q k) v on one GPU: fused by the kernel's curve, unfused as two products of the full square plus score
    bytes. Encoders and cross-attention compute the full square anyway; with cross-attention a layer has two cores. Measured kernels are causal."""
    model, constants = setting.model, setting.constants
    window = float(model.sliding_window) if layer_class.attention in ("sliding_attention", "chunked_attention") and model.sliding_window else None
    qk, v = head_widths(model)
    heads = model.num_attention_heads / share.tp
    if share.kernel != "unfused":
        square = float(share.seq_len) * share.seq_len
        areas = [visited_area(share.seq_len, window) if layer_class.causal else square, *([square] if layer_class.cross_attention else [])]
        times = [fused_attention_s(machine.attention[share.kernel], share.sequences * heads * visited / share.cp, qk + v,
                                   keys=2.0 * visited / share.seq_len, blocks=share.tokens * heads / QUERY_BLOCK) for visited in areas]
        if machine.measured_attention is not None and layer_class.causal:
            limit = int(window) if window is not None and window < share.seq_len else None
            found = machine.measured_attention.seconds((qk, v, limit), share.seq_len, share.sequences * heads / share.cp, times[0])
            times[0] = found or times[0]
        return sum(t[0] for t in times), sum(t[1] for t in times)
    flops = attention_flops(share.sequences, score_area(share.seq_len, window) / share.cp, heads, qk, v)
    odd = constants.compute.odd_head_dim if qk % 8 else 1.0
    products = 2.0 * flops * odd / (machine.half.flops_s * machine.half.curve.compute * constants.compute.unfused_gemm_share)
    scores = score_elements(share, heads)
    elementwise, cores = constants.elementwise, float(layer_class.cores)
    return (cores * (products + elementwise_s(scores * elementwise.unfused_score_forward, machine.elementwise_bytes_s)),
            cores * (2.0 * products + elementwise_s(scores * elementwise.unfused_score_backward, machine.elementwise_bytes_s)))


def score_elements(share: Share, heads: float) -> float:
    """Attention scores that an unfused kernel stores on one GPU: b a s^2 / (t c), the masked half included."""
    return share.sequences * heads * share.seq_len * share.seq_len / share.cp


def elementwise_bytes(setting: Setting, layer_class: LayerClass, share: Share) -> float:
    """Bytes of norms, residuals, activation, rotary, casts and dispatch of one layer forward. Experts cast what reaches them."""
    model, c = setting.model, setting.constants.elementwise
    tokens, h, t = share.tokens, model.hidden_size, share.tp
    replicated = c.replicated * tokens * h * share.replicated * (c.eager_norm if share.eager_norm else 1.0)
    replicated *= 1.5 if layer_class.cross_attention else 1.0              # three blocks with a norm and a residual instead of two
    fold = 3.0 if model.gated_ffn else 2.0
    sharded = 3.0 * projected_width(model, t) * tokens * layer_class.cores
    ffn = model.moe.shared_width if layer_class.moe and model.moe is not None else model.ffn_hidden_size
    sharded += fold * tokens * ffn / t
    experts = expert_elements(model, layer_class, share)
    cores = max(1, layer_class.cores)
    cast = c.fp8_cast * (tokens * (cores * h + (h if ffn else 0.0) + (cores * model.num_attention_heads * head_widths(model)[1] + ffn) / t)
                         + experts.cast) \
        if setting.workload.precision in ("fp8", "nvfp4") else 0.0
    dispatched = setting.constants.moe.dispatch_bytes * experts.dispatched
    return (replicated + c.sharded * (sharded + experts.activated) + dispatched) * setting.activation_element / 2.0 + cast
