"""The routed experts of one layer on one GPU: grouped matrix products of the tokens that reach them, activation and dispatch bytes."""
from dataclasses import dataclass

from solver.cost.machine import Machine
from solver.cost.operators import gemm_s
from solver.cost.setting import Setting
from solver.cost.share import Share
from solver.domain.model import Architecture, LayerClass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWork:
    """Seconds of the routed experts' matrix products of one layer; `first_matrix_s` is part of forward."""

    forward_s: float = 0.0
    input_gradient_s: float = 0.0
    weight_gradient_s: float = 0.0
    first_matrix_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertElements:
    """Elements that memory-bound work of the routed experts touches, forward: `activated` as those of an FFN, `dispatched` permuted and back."""

    activated: float = 0.0
    dispatched: float = 0.0


NO_WORK, NO_ELEMENTS = ExpertWork(), ExpertElements()


def routed_tokens(model: Architecture, share: Share) -> float:
    """Tokens that reach the experts of one GPU: T / t * top_k from each of its etp-fold group."""
    return share.tokens / share.tp * share.etp * (model.moe.top_k if model.moe else 0)


def expert_work(setting: Setting, machine: Machine, layer_class: LayerClass, share: Share) -> ExpertWork:
    """Three products per expert matrix: T / t * etp * top_k tokens reach this GPU's E / ep experts, evenly; each expert is cut over etp.

    Real routers are less even.
    """
    model, moe = setting.model, setting.model.moe
    if not layer_class.moe or moe is None:
        return NO_WORK
    h, inner = model.hidden_size, 2 if model.gated_ffn else 1
    copies = max(1.0, moe.num_experts / share.ep)
    rows, f = routed_tokens(model, share) / copies, moe.expert_ffn_hidden_size / share.etp

    def seconds(m: float, n: float, k: float) -> float:
        return gemm_s(machine.linear, m, n, k, copies=copies) / setting.constants.compute.grouped_gemm_share

    first = seconds(rows, inner * f, h)
    return ExpertWork(forward_s=first + seconds(rows, h, f), input_gradient_s=seconds(rows, h, inner * f) + seconds(rows, f, h),
                      weight_gradient_s=seconds(h, inner * f, rows) + seconds(f, h, rows), first_matrix_s=first)


def expert_elementwise(model: Architecture, layer_class: LayerClass, share: Share) -> ExpertElements:
    """Elements of the experts' activation, and of dispatch: T / t * top_k * h permuted on the way out and back."""
    moe = model.moe
    if not layer_class.moe or moe is None:
        return NO_ELEMENTS
    fold = 3.0 if model.gated_ffn else 2.0
    return ExpertElements(activated=fold * routed_tokens(model, share) * moe.expert_ffn_hidden_size / share.etp,
                          dispatched=share.tokens / share.tp * moe.top_k * model.hidden_size)
