"""The routed experts of one layer on one GPU: grouped matrix products of the tokens that reach them, activation, dispatch and cast elements."""
from dataclasses import dataclass

from solver.cost.alike import everywhere, larger, where
from solver.cost.machine import Machine
from solver.cost.operators import TILE, Rate
from solver.cost.setting import Setting
from solver.cost.share import Share
from solver.domain.model import Architecture, LayerClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Tokens at the experts of one GPU: `rows`, one per token and expert; `experts` that at least one reaches, whose weights are read; `computed`,
    the rows of the tiles that hold them."""

    rows: float
    experts: float
    computed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWork:
    """Seconds of the routed experts' matrix products of one layer; `first_matrix_s` is part of forward."""

    forward_s: float = 0.0
    input_gradient_s: float = 0.0
    weight_gradient_s: float = 0.0
    first_matrix_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertElements:
    """Elements that memory-bound work of the routed experts touches, forward: `activated` as those of an FFN, `dispatched` permuted on the way out
    and back, `cast` inputs of narrow products."""

    activated: float = 0.0
    dispatched: float = 0.0
    cast: float = 0.0


NO_WORK, NO_ELEMENTS = ExpertWork(), ExpertElements()


def routed_tokens(model: Architecture, share: Share) -> float:
    """Tokens that reach the experts of one GPU: T / t * top_k from each of its etp-fold group."""
    return share.tokens / share.tp * share.etp * (model.moe.top_k if model.moe else 0)


def even_load(rows: float, local: float, num_experts: int, top_k: int) -> Load:
    """`rows` spread evenly by chance over `local` of E experts, k distinct ones per token.

    Of N tokens in the whole expert group, E (1 - (1 - k / E)^N) experts are hit on average; each has, beside its full tiles, half a tile of waste.
    """
    tokens = rows / top_k * num_experts / local
    hit = local * (1.0 - (1.0 - top_k / num_experts) ** tokens) if top_k < num_experts else local
    return Load(rows=rows, experts=hit, computed=rows + 0.5 * TILE * hit)


def grouped_s(rate: Rate, load: Load, n: float, k: float) -> float:
    """Seconds of the products (rows of each expert x k) by (k x n), launched as one: `gemm_s` on whole tiles of rows.

    max(2 computed n k / (flops * e) * (1 + c * SM / tiles) * (1 + k0 / k) * align, bytes / (bandwidth * e_b)) + t0 with computed / 128 rows of tiles.
    Bytes: the weights of every expert that is hit once, the rows in and out. Grows in rows; per row it falls. Kernels with small tiles of rows
    read weights that the cache does not hold again and again, which is not counted.
    """
    if everywhere(load.rows <= 0.0):
        return 0.0
    curve = rate.curve
    align = where((n % TILE > 0) | (k % TILE > 0), rate.misaligned, 1.0)
    losses = (1.0 + curve.wave * rate.sms / (load.computed / TILE * n / TILE)) * (1.0 + curve.short_k * rate.k_scale / k) * align
    compute = 2.0 * load.computed * n * k / (rate.flops_s * curve.compute) * losses
    moved = rate.element_bytes * (load.experts * n * k + load.rows * k) + rate.output_bytes * load.rows * n
    return larger(compute, moved / (rate.bandwidth_bytes_s * curve.bandwidth)) + curve.fixed_s


def grouped_weight_gradient_s(rate: Rate, load: Load, m: float, n: float, gradient_bytes: float) -> float:
    """Seconds of the weight gradients (m x n) of every expert, each a product over its own rows, added to what other micro-batches left.

    The inner dimension is rows / experts, so few rows lose what short products lose, and bind on the gradients, which are read and written.
    """
    if everywhere(load.rows <= 0.0):
        return 0.0
    curve, inner = rate.curve, load.rows / load.experts
    align = where((n % TILE > 0) | (m % TILE > 0), rate.misaligned, 1.0)
    losses = (1.0 + curve.wave * rate.sms / (load.experts * m / TILE * n / TILE)) * (1.0 + curve.short_k * rate.k_scale / inner) * align
    compute = 2.0 * load.rows * m * n / (rate.flops_s * curve.compute) * losses
    moved = rate.element_bytes * load.rows * (m + n) + 2.0 * gradient_bytes * load.experts * m * n
    return larger(compute, moved / (rate.bandwidth_bytes_s * curve.bandwidth)) + curve.fixed_s


def expert_work(setting: Setting, machine: Machine, layer_class: LayerClass, share: Share) -> ExpertWork:
    """Three products per expert matrix: T / t * etp * top_k tokens reach this GPU's E / ep experts, each cut over etp.

    Evenly, as routers are trained to be and published benchmarks force them to be; the busiest GPU of a less even router sets the pace.
    """
    model, moe = setting.model, setting.model.moe
    if not layer_class.moe or moe is None:
        return NO_WORK
    h, f = model.hidden_size, moe.expert_ffn_hidden_size / share.etp
    up = (2 if model.gated_ffn else 1) * f
    load = even_load(routed_tokens(model, share), larger(1.0, moe.num_experts / share.ep), moe.num_experts, moe.top_k)
    rate, slower, gradient = machine.linear, setting.constants.moe.grouped_share, setting.gradient_element
    first = grouped_s(rate, load, up, h)
    return ExpertWork(forward_s=(first + grouped_s(rate, load, h, f)) / slower,
                      input_gradient_s=(grouped_s(rate, load, h, up) + grouped_s(rate, load, f, h)) / slower,
                      weight_gradient_s=(grouped_weight_gradient_s(rate, load, h, up, gradient)
                                         + grouped_weight_gradient_s(rate, load, f, h, gradient)) / slower,
                      first_matrix_s=first / slower)


def expert_elements(model: Architecture, layer_class: LayerClass, share: Share) -> ExpertElements:
    """Elements of the experts' activation, of dispatch (T / t * top_k * h permuted on the way out and back), and of both products' inputs."""
    moe = model.moe
    if not layer_class.moe or moe is None:
        return NO_ELEMENTS
    fold, rows, f = 3.0 if model.gated_ffn else 2.0, routed_tokens(model, share), moe.expert_ffn_hidden_size / share.etp
    return ExpertElements(activated=fold * rows * f, dispatched=share.tokens / share.tp * moe.top_k * model.hidden_size,
                          cast=rows * (model.hidden_size + f))
