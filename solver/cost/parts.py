"""What one layer, the embedding and the head cost on one GPU of a unit: seconds per micro-batch by cause, and bytes."""
from dataclasses import dataclass, replace
from functools import lru_cache

from solver.catalog.efficiency import Stack
from solver.cost import ends, memory, profiles, synchronise
from solver.cost.alike import by_name, chosen, everywhere, many, smaller, somewhere, where
from solver.cost.communicators import group_path
from solver.cost.expert_traffic import expert_s, shown_s
from solver.cost.layer import Work, layer_work
from solver.cost.machine import Machine, attention_kernel
from solver.cost.parameters import embedding_parameters, final_parameters, head_parameters, layer_parameters, mtp_parameters
from solver.cost.setting import Setting, overlapping, remembered
from solver.cost.share import Share
from solver.cost.synchronise import DataTraffic, Holding
from solver.cost.synchronise import visible_s as _visible
from solver.cost.traffic import PathOf, context_s, tensor_s
from solver.cost.unit import PartCost, UnitSpec
from solver.domain.degrees import Recompute
from solver.domain.estimate import TimeParts
from solver.domain.identity import Same
from solver.domain.model import LayerClass
from solver.domain.profiles import EMBEDDING, HEAD

UNITS_AT_WORK = 64                                         # whose shares are kept while their parts are priced


def share_of(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack) -> Share:
    """What one GPU of a unit sees of a micro-batch. Eager norms cost more only where they are RMSNorms, which gated models have."""
    if many(spec.tp):
        return _share(shared, machine, spec, stack)
    return _share_of(Same(shared), Same(machine), Same(spec), Same(stack))


@lru_cache(maxsize=UNITS_AT_WORK)
def _share_of(setting: Same[Setting], of: Same[Machine], unit: Same[UnitSpec], by: Same[Stack]) -> Share:
    return _share(setting.value, of.value, unit.value, by.value)


def _share(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack) -> Share:
    workload = shared.workload
    eager = workload.norm_kernel == "eager" or (workload.norm_kernel == "auto" and stack.eager_norm)
    return Share(sequences=spec.micro_batch_size / spec.dp, seq_len=workload.seq_len, tp=spec.tp, cp=spec.cp, ep=spec.ep, etp=spec.etp,
                 sequence_parallel=spec.sequence_parallel, kernel=attention_kernel(shared.constants, machine.arch, workload, stack.attention),
                 eager_norm=eager and shared.model.gated_ffn, framework=spec.framework)


def _path_of(shared: Setting, machine: Machine, least: bool = False) -> PathOf:
    return lambda size, stride: group_path(shared, machine.group.name, size, stride, floor=least)


def holding_of(shared: Setting, spec: UnitSpec, layer_class: LayerClass) -> Holding:
    """Parameters of one layer on one GPU: attention and FFN over t, experts over ep * etp, norms, router and latent down-projections replicated."""
    dense, experts = _layer_parameters(shared, layer_class, spec.tp)
    held = profiles.held_share(shared, spec, layer_class, (dense + experts) * shared.activation_element)
    return Holding(dense=dense * held, experts=experts / (spec.ep * spec.etp) * held)


@remembered
def _layer_parameters(shared: Setting, layer_class: LayerClass, tp: int) -> tuple[float, int]:
    """Parameters of one layer on a tensor rank, but for the experts, and all the experts'."""
    p, model = layer_parameters(shared.model, layer_class), shared.model
    replicated = 0
    if model.mla is not None and p.attention:
        replicated = model.hidden_size * ((model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank + model.mla.qk_rope_head_dim)
    return (p.attention - replicated + p.mlp + p.shared_experts) / tp + replicated + p.norms + p.router, p.experts


def states(shared: Setting, spec: UnitSpec, traffic: DataTraffic, holding: Holding) -> tuple[float, float, float]:
    """(weights, gradients, optimizer) bytes of a holding on one GPU."""
    shards = synchronise.shard_counts(spec, traffic)
    sizes = memory.state_elements(shared, spec.zero_stage, spec.framework)
    dense = memory.state_parts(spec.zero_stage, shards[0], *sizes)
    experts = memory.state_parts(spec.zero_stage, shards[1], *sizes)
    w, g, o = (holding.dense * d + holding.experts * e for d, e in zip(dense, experts, strict=True))
    return w, g, o


def _gathers(shared: Setting, spec: UnitSpec, traffic: DataTraffic, holding: Holding) -> tuple[float, float]:
    """Seconds of weight gathering and gradient scattering in (forward, backward) of every micro-batch: ZeRO-2 scatters, ZeRO-3 does both.

    Both send in the training precision, as DeepSpeed and FSDP do.
    """
    if everywhere((traffic.ranks == 1) | (spec.zero_stage < 2)):
        return 0.0, 0.0
    once = where(traffic.ranks > 1, traffic.gather_s(holding, shared.activation_element), 0.0)
    return where(spec.zero_stage >= 3, once, 0.0), chosen((0.0, 0.0, 1.0, 2.0), spec.zero_stage) * once


@dataclass(frozen=True, slots=True, kw_only=True)
class _Busy:
    """Seconds of one layer on one GPU before the host's launch floor; `seen_*` include ZeRO's traffic. What is `measured` holds the floor."""

    work: Work
    measured: bool
    tensor_s: tuple[float, float]                          # forward, backward
    context_s: tuple[float, float]
    expert_s: tuple[float, float]
    recompute_s: float
    again_share: float
    forward_s: float
    backward_s: float
    seen_forward_s: float
    seen_backward_s: float


def _busy(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack, traffic: DataTraffic, layer_class: LayerClass, least: bool) -> _Busy:
    share = share_of(shared, machine, spec, stack)
    work, is_measured, tensor, context, dispatch = _worked(shared, Same(machine), layer_class, share, spec.ulysses, spec.hiding_rounds > 1.0, least)
    forward = work.forward_s + tensor[0] + context[0] + dispatch[0]
    again_share, recompute = _recompute(shared, spec, stack, share, forward, work)
    backward = work.backward_s + tensor[1] + context[1] + dispatch[1] + recompute
    gathers = _gathers(shared, spec, traffic, holding_of(shared, spec, layer_class))
    return _Busy(work=work, measured=is_measured, tensor_s=tensor, context_s=context, expert_s=dispatch, recompute_s=recompute,
                 again_share=again_share, forward_s=forward, backward_s=backward, seen_forward_s=_visible(shared, forward, gathers[0]),
                 seen_backward_s=_visible(shared, backward, gathers[1]))


Directions = tuple[float, float]                           # seconds forward, backward


@remembered
def _worked(shared: Setting, of: Same[Machine], layer_class: LayerClass, share: Share, ulysses: int, virtual_stages: bool,
            least: bool) -> tuple[Work, bool, Directions, Directions, Directions]:
    """Computation of one layer, whether it is measured, and tensor-parallel, context-parallel and expert-parallel traffic that shows."""
    machine, stack = of.value, shared.constants.stack(share.framework)
    path_of, measured = _path_of(shared, machine, least), profiles.layer_work_measured(shared, machine, layer_class, share, least)
    work = layer_work(shared, machine, layer_class, share) if measured is None else measured[0]
    tensor = _shown(overlapping(shared, stack)[1], share, work, tensor_s(shared, path_of, layer_class, share)) if measured is None else measured[1:]
    context = context_s(shared, path_of, layer_class, share, ulysses, work.attention_forward_s, work.attention_backward_s)
    expert = expert_s(shared, stack, path_of, layer_class, share)
    dispatch = (shown_s(shared, stack, path_of, share, virtual_stages, expert, work.forward_s),
                shown_s(shared, stack, path_of, share, virtual_stages, expert, work.backward_s))
    return work, measured is not None, tensor, context, dispatch


def _shown(overlap: float, share: Share, work: Work, tensor: float) -> tuple[float, float]:
    """Tensor-parallel seconds that show in (forward, backward): under sequence parallelism some stacks cut gather and scatter into pieces that run
    beside the matrix products next to them, so a share hides, at most behind those products."""
    hidden = overlap * tensor if share.sequence_parallel else 0.0
    return tensor - smaller(hidden, work.forward_s - work.attention_forward_s), tensor - smaller(hidden, work.backward_s - work.attention_backward_s)


def _floored(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack, traffic: DataTraffic, layer_class: LayerClass,
             busy: _Busy) -> tuple[float, float]:
    """(forward, backward) with the launch floor: their sum is at least the floor, shared in proportion.

    The proportion is that without sequence parallelism and with ring attention alone: switching the former on never lengthens either, and how hidden
    context traffic is split changes neither.
    """
    floor, total = _host_floor(shared, spec, stack, layer_class, busy.again_share), busy.seen_forward_s + busy.seen_backward_s
    if busy.measured or everywhere(floor <= total):
        return busy.seen_forward_s, busy.seen_backward_s
    of = busy
    if somewhere((spec.sequence_parallel & (spec.tp > 1)) | (spec.ulysses > 1)):
        of = _busy(shared, machine, replace(spec, sequence_parallel=False, ulysses=1), stack, traffic, layer_class, False)
    share = of.seen_forward_s / (of.seen_forward_s + of.seen_backward_s)
    return where(floor > total, floor * share, busy.seen_forward_s), where(floor > total, floor * (1.0 - share), busy.seen_backward_s)


def layer_part(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack, traffic: DataTraffic, layer_class: LayerClass, *,
               least: bool = False) -> PartCost:
    """One layer. `least`: no more than it costs, and no more per sequence than any smaller micro-batch (measured times may rise)."""
    busy = _busy(shared, machine, spec, stack, traffic, layer_class, least)
    forward, backward = _floored(shared, machine, spec, stack, traffic, layer_class, busy)
    work, waiting = busy.work, forward + backward - busy.seen_forward_s - busy.seen_backward_s
    parts = TimeParts(
        compute_s=work.forward_s + work.backward_s + waiting, tensor_comm_s=sum(busy.tensor_s), context_comm_s=sum(busy.context_s),
        expert_comm_s=sum(busy.expert_s), recompute_s=busy.recompute_s,
        data_comm_s=(busy.seen_forward_s - busy.forward_s) + (busy.seen_backward_s - busy.backward_s))
    kept = profiles.layer_bytes(shared, machine, layer_class, share_of(shared, machine, spec, stack), spec.recompute, stack.selective_memory)
    weights, gradients, optimizer = states(shared, spec, traffic, holding_of(shared, spec, layer_class))
    part = PartCost(forward_s=forward, backward_s=backward,
                    weight_gradient_s=smaller(backward, work.weight_gradient_s * backward / busy.seen_backward_s), parts=parts,
                    weights_bytes=weights, gradients_bytes=gradients, optimizer_bytes=optimizer, activation_bytes=kept.kept)
    return _entered(shared, machine, spec, stack, traffic, part) if layer_class.entry else part


def decoder_embedding(shared: Setting, spec: UnitSpec) -> Holding:
    """The copy of the token embedding with which the decoder of an encoder-decoder begins; nothing in a decoder alone."""
    return Holding(dense=shared.model.vocab_size * shared.model.hidden_size / spec.tp if shared.model.encoder_layers else 0.0)


def _entered(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack, traffic: DataTraffic, layer: PartCost) -> PartCost:
    """The decoder's first layer with its token embedding, and the encoder's output that it keeps. Where the decoder begins on the pipeline's first
    and only stage the copy is no copy (`units.shared_ends`); on a first stage of several it is counted twice. Later stages keep the encoder's output
    too, which is left out."""
    share = share_of(shared, machine, spec, stack)
    work = _embedding_work(shared, Same(machine), share)
    weights, gradients, optimizer = states(shared, spec, traffic, decoder_embedding(shared, spec))
    parts = replace(layer.parts, compute_s=layer.parts.compute_s + work.forward_s + work.backward_s,
                    tensor_comm_s=layer.parts.tensor_comm_s + work.tensor_forward_s + work.tensor_backward_s)
    return replace(
        layer, forward_s=layer.forward_s + work.forward_s + work.tensor_forward_s,
        backward_s=layer.backward_s + work.backward_s + work.tensor_backward_s,
        weight_gradient_s=layer.weight_gradient_s + work.weight_gradient_s, parts=parts, weights_bytes=layer.weights_bytes + weights,
        gradients_bytes=layer.gradients_bytes + gradients, optimizer_bytes=layer.optimizer_bytes + optimizer,
        activation_bytes=layer.activation_bytes + head_input_bytes(shared, share) / 2.0)


def _recompute(shared: Setting, spec: UnitSpec, stack: Stack, share: Share, forward_s: float, work: Work) -> tuple[float, float]:
    """(share of the forward launches repeated, seconds) of recomputation: full repeats the whole forward, collectives included; partial norms,
    activation and the first FFN matrix; selective the attention core of unfused kernels, or whole operators where the stack checkpoints so."""

    def again(mode: Recompute) -> tuple[float, float]:
        if mode == "full":
            return 1.0, forward_s
        if mode == "partial":
            return 0.5, work.first_matrix_s + shared.constants.elementwise.recomputed_share_partial * work.elementwise_forward_s
        if mode == "selective":
            if stack.selective_time > 0.0:
                return stack.selective_time, stack.selective_time * forward_s
            if share.kernel == "unfused":
                return 0.25, work.attention_forward_s
        return 0.0, 0.0

    return by_name(spec.recompute, again)


def _host_floor(shared: Setting, spec: UnitSpec, stack: Stack, layer_class: LayerClass, again_share: float) -> float:
    """Least seconds per layer and micro-batch, forward, recompute and backward together: the host cannot launch kernels faster.

    One hard maximum over all three, because the launch queue lets the surplus of backward hide the launches of forward.
    """
    host = shared.constants.host
    seconds = host.forward_s + host.backward_s + again_share * (host.forward_s + host.recompute_s)
    seconds += where(spec.tp > 1, host.tensor_s * (spec.tp / 8.0) ** 2, 0.0)
    seconds *= 1.5 if layer_class.cross_attention else 1.0 # three blocks to launch instead of two
    if layer_class.moe and shared.model.moe is not None:
        seconds += shared.constants.moe.host_s + shared.constants.moe.host_expert_s * shared.model.moe.num_experts / spec.ep
    return stack.host * seconds


def _end(shared: Setting, spec: UnitSpec, traffic: DataTraffic, work: ends.EndWork, holding: Holding, activation_bytes: float) -> PartCost:
    forward, backward = work.forward_s + work.tensor_forward_s, work.backward_s + work.tensor_backward_s
    gathers = _gathers(shared, spec, traffic, holding)
    seen_forward, seen_backward = _visible(shared, forward, gathers[0]), _visible(shared, backward, gathers[1])
    parts = TimeParts(compute_s=work.forward_s + work.backward_s, tensor_comm_s=work.tensor_forward_s + work.tensor_backward_s,
                      data_comm_s=(seen_forward - forward) + (seen_backward - backward))
    weights, gradients, optimizer = states(shared, spec, traffic, holding)
    return PartCost(forward_s=seen_forward, backward_s=seen_backward, weight_gradient_s=work.weight_gradient_s, parts=parts, weights_bytes=weights,
                    gradients_bytes=gradients, optimizer_bytes=optimizer, activation_bytes=activation_bytes)


def embedding_part(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack, traffic: DataTraffic) -> PartCost:
    share = share_of(shared, machine, spec, stack)
    work = _embedding_work(shared, Same(machine), share)
    work = profiles.end_work(shared, machine, spec, EMBEDDING, work)
    return _end(shared, spec, traffic, work, embedding_holding(shared, spec), 0.0)


@remembered
def _embedding_work(shared: Setting, of: Same[Machine], share: Share) -> ends.EndWork:
    return ends.embedding_work(shared, of.value, _path_of(shared, of.value), share)


@remembered
def _head_work(shared: Setting, of: Same[Machine], share: Share, vocabulary_parallel_loss: bool) -> ends.EndWork:
    return ends.head_work(shared, of.value, _path_of(shared, of.value), share, vocabulary_parallel_loss)


def embedding_holding(shared: Setting, spec: UnitSpec) -> Holding:
    dense = embedding_parameters(shared.model) / spec.tp
    return Holding(dense=dense * profiles.held_share(shared, spec, EMBEDDING, dense * shared.activation_element))


def head_holding(shared: Setting, spec: UnitSpec) -> Holding:
    """Output layer (a copy of the embedding where tied), final norm, and multi-token-prediction layers, which sit with the loss. A profile of the
    head is of the former two."""
    model = shared.model
    output = head_parameters(model) + (model.vocab_size * model.hidden_size if model.tied_embeddings else 0)
    plain = output / spec.tp + final_parameters(model)
    held = profiles.held_share(shared, spec, HEAD, plain * shared.activation_element)
    if not model.mtp_layers:
        return Holding(dense=plain * held)
    layer = layer_parameters(model, shared.layers[-1])
    extra = mtp_parameters(model) - model.mtp_layers * layer.experts
    return Holding(dense=plain * held + extra / spec.tp, experts=model.mtp_layers * layer.experts / (spec.ep * spec.etp))


def head_input_bytes(shared: Setting, share: Share) -> float:
    """What the head keeps of every micro-batch in flight: the input of the final norm and that of the output layer."""
    return 4.0 * share.tokens * shared.model.hidden_size * share.replicated * shared.activation_element / 2.0


def head_part(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack, traffic: DataTraffic, last_layer: PartCost) -> PartCost:
    share, model = share_of(shared, machine, spec, stack), shared.model
    work = _head_work(shared, Same(machine), share, spec.vocabulary_parallel_loss)
    work = profiles.end_work(shared, machine, spec, HEAD, work)
    residual = head_input_bytes(shared, share)
    single = _end(shared, spec, traffic, work, head_holding(shared, spec), residual)
    n = model.mtp_layers
    if not n:
        return single
    parts = TimeParts(**{name: getattr(single.parts, name) * (1 + n) + getattr(last_layer.parts,
                                                                               name) * n for name in TimeParts.__dataclass_fields__})
    return PartCost(forward_s=single.forward_s * (1 + n) + last_layer.forward_s * n,
                    backward_s=single.backward_s * (1 + n) + last_layer.backward_s * n,
                    weight_gradient_s=single.weight_gradient_s * (1 + n) + last_layer.weight_gradient_s * n, parts=parts,
                    weights_bytes=single.weights_bytes, gradients_bytes=single.gradients_bytes, optimizer_bytes=single.optimizer_bytes,
                    activation_bytes=residual + n * last_layer.activation_bytes)
