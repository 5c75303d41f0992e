"""Communication of one layer: bytes by formula, seconds over the fabric of one node group."""
from collections.abc import Callable

from solver.cost.alike import everywhere, larger, smaller
from solver.cost.collectives import Path, all_reduce_s, all_to_all_s, ring_pass_s, scattered_all_reduce_s
from solver.cost.layer import head_widths, local_kv_heads
from solver.cost.setting import Setting
from solver.cost.share import Share
from solver.domain.model import Architecture, LayerClass

PathOf = Callable[[int, int], Path]                        # (ranks, stride) -> levels within the node group


def tensor_all_reduce_bytes(sequences: float, seq_len: int, hidden: int, tp: int, element_bytes: float = 2.0) -> float:
    """Bytes that each GPU sends per layer and micro-batch for tensor parallelism: 4 all-reduces (2 forward, 2 backward) of b s h elements.

    Each ring all-reduce of S bytes sends 2 (t - 1) / t * S. Sequence parallelism sends the same as reduce-scatter and all-gather.
    """
    return 4.0 * 2.0 * (tp - 1.0) / tp * sequences * seq_len * hidden * element_bytes


def ulysses_elements(activations: float, degree: int, query_heads: int, kv_heads: int) -> float:
    """Elements per GPU and block, forward and backward, of Ulysses attention of degree N: 4 A / N + 4 A / (N a / k), A = b s h.

    Queries and outputs, then keys and values; with as many KV heads as heads 8 A / N. Where N exceeds the KV heads these are replicated first.
    """
    replicated = max(1.0, degree / kv_heads)
    return 4.0 * activations / degree + 4.0 * activations / (degree * query_heads / kv_heads) * replicated


def ring_elements(activations: float, query_heads: int, kv_heads: int) -> float:
    """Elements per GPU and block of ring attention, forward and backward: 6 A k / a (KV forward; KV and their gradients backward)."""
    return 6.0 * activations * kv_heads / query_heads


def tensor_s(setting: Setting, path_of: PathOf, layer_class: LayerClass, share: Share) -> float:
    """Exposed seconds of tensor parallelism in one pass (forward, backward or recomputation) of one layer.

    One all-reduce behind each attention and one behind the dense FFN or shared experts; routed experts cut over etp gather and scatter their tokens.
    """
    if everywhere(share.tp == 1):
        return 0.0
    model = setting.model
    path = path_of(share.tp, 1)
    size = share.tokens * model.hidden_size * setting.activation_element
    dense = not (layer_class.moe and model.moe)
    shared = model.moe is not None and model.moe.shared_width > 0
    reductions = layer_class.cores + (dense or shared or not share.sequence_parallel)
    seconds = reductions * _reduction_s(path, size, share.sequence_parallel)
    if not dense and model.moe is not None and not everywhere(share.etp == 1):
        seconds += scattered_all_reduce_s(path_of(share.etp, 1),
                                          share.tokens / share.tp * share.etp * model.moe.top_k * model.hidden_size * setting.activation_element)
    return seconds * setting.constants.communication.tensor_contention


def _reduction_s(path: Path, size_bytes: float, scattered: bool) -> float:
    """One reduction over the tensor ranks: an all-reduce, or under sequence parallelism reduce-scatter and all-gather, at most as long.

    The latter alone would take up to a third longer where the switch reduces; stacks that run so overlap part of it with matrix products, and the
    search takes sequence parallelism never to lengthen anything.
    """
    seconds = all_reduce_s(path, size_bytes)
    return smaller(seconds, scattered_all_reduce_s(path, size_bytes)) if scattered else seconds


def context_s(setting: Setting, path_of: PathOf, layer_class: LayerClass, share: Share, ulysses: int, attention_forward_s: float,
              attention_backward_s: float) -> tuple[float, float]:
    """Exposed seconds (forward, backward) of context parallelism in one layer: Ulysses all-to-alls, and what the ring cannot hide behind attention,
    for each attention core."""
    if everywhere(share.cp == 1):
        return 0.0, 0.0
    cores = float(layer_class.cores)
    model, element = setting.model, setting.activation_element
    qk, v = head_widths(model)
    ring = larger(1, share.cp // ulysses)
    kv = (qk + v) * _kv_heads_sent(model, share)
    all_to_all = 0.0
    if not everywhere(ulysses == 1):
        path = path_of(ulysses, share.tp)
        query = share.tokens * model.num_attention_heads / share.tp * qk * element
        keys = share.tokens * kv * element * larger(1.0, ulysses / _kv_heads_sent(model, share)) / 2.0
        all_to_all = cores * (2.0 * all_to_all_s(path, query) + 2.0 * all_to_all_s(path, keys))
    if everywhere(ring == 1):
        return all_to_all, all_to_all
    kept = larger(kv / ulysses, qk + v)
    passed = cores * ring_pass_s(path_of(ring, share.tp * ulysses), share.tokens * ulysses * kept * element)
    return all_to_all + larger(0.0, passed - attention_forward_s), all_to_all + larger(0.0, 2.0 * passed - attention_backward_s)


def _kv_heads_sent(model: Architecture, share: Share) -> float:
    return model.num_attention_heads / share.tp if model.mla is not None else local_kv_heads(model, share.tp)
