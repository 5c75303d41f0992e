"""Costs of a unit: the tables from which both `price` and the search compose stages."""
from collections.abc import Callable
from functools import lru_cache

from solver.catalog.efficiency import Stack
from solver.cost import ends, memory, synchronise
from solver.cost.fabric import between, nearest, path_in_group
from solver.cost.layer import Share, layer_work
from solver.cost.machine import Machine, attention_kernel
from solver.cost.parameters import embedding_parameters, final_parameters, head_parameters, layer_parameters, mtp_parameters
from solver.cost.setting import Setting, memoised, setting
from solver.cost.synchronise import DataTraffic, Holding
from solver.cost.traffic import PathOf, context_s, expert_s, tensor_s
from solver.cost.unit import PartCost, SyncPiece, UnitCosts, UnitSpec
from solver.domain.estimate import TimeParts
from solver.domain.model import LayerClass
from solver.domain.problem import Problem

UNITS_KEPT = 16_384


def unit_costs(problem: Problem, spec: UnitSpec) -> UnitCosts:
    """What a stage of this unit spends per layer of each class, at its ends, in memory and after the drain; memoised per problem.

    Several node groups: every part at its slowest member, capacity of the smallest. A maximum over layer classes (working sets) is taken over all classes
    of the model, so that memory stays affine in the layers that a stage holds: too much where a stage holds only small ones.
    """
    return _table(problem)(spec)


def _build(shared: Setting) -> Callable[[UnitSpec], UnitCosts]:
    return lru_cache(maxsize=UNITS_KEPT)(lambda spec: _costs(shared, spec))


_table = memoised(_build)


def _costs(shared: Setting, spec: UnitSpec) -> UnitCosts:
    stack = shared.constants.stack(spec.framework)
    traffic = synchronise.data_traffic(shared, spec)
    machines = [shared.machines[name] for name in spec.groups]
    layers = {cls: _slowest([_layer(shared, m, spec, stack, traffic, cls) for m in machines]) for cls in shared.classes}
    embedding = _slowest([_embedding(shared, m, spec, stack, traffic) for m in machines])
    head = _slowest([_head(shared, m, spec, stack, traffic, layers[shared.layers[-1]]) for m in machines])
    shares = [share_of(shared, m, spec, stack) for m in machines]
    piece, optimizer_share = _sync(shared, machines, spec, traffic, layers, embedding, head)
    return UnitCosts(
        spec=spec, layers=layers, embedding=embedding, head=head,
        logits_bytes=memory.logits_bytes(shared, shares[0], spec.vocabulary_parallel_loss),
        buffers_bytes=max(_buffers(shared, spec, stack, share) for share in shares),
        capacity_bytes=min(memory.allocator_capacity_bytes(shared, m.capacity_bytes, _active_dimensions(spec)) for m in machines),
        sync=(piece,), optimizer_share=optimizer_share, shared_ends=_shared_ends(shared, spec, traffic))


def _slowest(costs: list[PartCost]) -> PartCost:
    return max(costs, key=lambda c: c.forward_s + c.backward_s)


def share_of(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack) -> Share:
    """What one GPU of a unit sees of a micro-batch. Eager norms cost more only where they are RMSNorms, which gated models have."""
    workload = shared.workload
    eager = workload.norm_kernel == "eager" or (workload.norm_kernel == "auto" and stack.eager_norm)
    return Share(sequences=spec.micro_batch_size / spec.dp, seq_len=workload.seq_len, tp=spec.tp, cp=spec.cp, ep=spec.ep, etp=spec.etp,
                 sequence_parallel=spec.sequence_parallel, kernel=attention_kernel(shared.constants, machine.arch, workload, stack.attention),
                 eager_norm=eager and shared.model.gated_ffn)


def _path_of(shared: Setting, machine: Machine) -> PathOf:
    return lambda size, stride: path_in_group(shared.constants, machine.group, size, stride)


def holding_of(shared: Setting, spec: UnitSpec, layer_class: LayerClass) -> Holding:
    """Parameters of one layer on one GPU: attention and FFN over t, experts over ep * etp, norms, router and latent down-projections replicated."""
    p, model = layer_parameters(shared.model, layer_class), shared.model
    replicated = 0
    if model.mla is not None and p.attention:
        replicated = model.hidden_size * ((model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank + model.mla.qk_rope_head_dim)
    dense = (p.attention - replicated + p.mlp + p.shared_experts) / spec.tp + replicated + p.norms + p.router
    return Holding(dense=dense, experts=p.experts / (spec.ep * spec.etp))


def _states(shared: Setting, spec: UnitSpec, traffic: DataTraffic, holding: Holding) -> tuple[float, float, float]:
    """(weights, gradients, optimizer) bytes of a holding on one GPU."""
    shards = synchronise.shard_counts(spec, traffic)
    sizes = (shared.gradient_element, shared.optimizer_state_bytes, shared.activation_element)
    dense = memory.state_parts(spec.zero_stage, shards[0], *sizes)
    experts = memory.state_parts(spec.zero_stage, shards[1], *sizes)
    w, g, o = (holding.dense * d + holding.experts * e for d, e in zip(dense, experts, strict=True))
    return w, g, o


def _gathers(shared: Setting, spec: UnitSpec, traffic: DataTraffic, holding: Holding) -> tuple[float, float]:
    """Seconds of weight gathering and gradient scattering in (forward, backward) of every micro-batch: ZeRO-2 scatters, ZeRO-3 does both."""
    if traffic.ranks == 1 or spec.zero_stage < 2:
        return 0.0, 0.0
    scatter = traffic.gather_s(holding, shared.gradient_element if spec.zero_stage == 2 else shared.activation_element)
    if spec.zero_stage == 2:
        return 0.0, scatter
    gather = traffic.gather_s(holding, shared.activation_element)
    return gather, gather + scatter


def _visible(shared: Setting, compute_s: float, hidden_s: float) -> float:
    """Seconds of compute with communication beside it: max(compute + slowdown * min(compute, communication), communication)."""
    return max(compute_s + shared.constants.communication.overlap_slowdown * min(compute_s, hidden_s), hidden_s)


def _layer(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack, traffic: DataTraffic, layer_class: LayerClass) -> PartCost:
    share, path_of = share_of(shared, machine, spec, stack), _path_of(shared, machine)
    work = layer_work(shared, machine, layer_class, share)
    tensor = tensor_s(shared, path_of, layer_class, share)
    context = context_s(shared, path_of, share, spec.ulysses, work.attention_forward_s, work.attention_backward_s)
    expert = expert_s(shared, path_of, layer_class, share, stack.dispatch_once_per_node)
    forward = work.forward_s + tensor + context[0] + expert
    again_share, recompute = _recompute(shared, spec, stack, share, forward, work.first_matrix_s, work.elementwise_forward_s, work.attention_forward_s)
    backward = work.backward_s + tensor + context[1] + expert + recompute
    holding = holding_of(shared, spec, layer_class)
    gathers = _gathers(shared, spec, traffic, holding)
    seen_forward, seen_backward = _visible(shared, forward, gathers[0]), _visible(shared, backward, gathers[1])
    floor = _host_floor(shared, spec, stack, layer_class, again_share)
    scale = max(1.0, floor / (seen_forward + seen_backward))
    parts = TimeParts(
        compute_s=work.forward_s + work.backward_s + (scale - 1.0) * (seen_forward + seen_backward), tensor_comm_s=2.0 * tensor,
        context_comm_s=context[0] + context[1], expert_comm_s=2.0 * expert, recompute_s=recompute,
        data_comm_s=(seen_forward - forward) + (seen_backward - backward))
    kept = memory.activation_bytes(shared, layer_class, share, spec.recompute, stack.selective_memory)
    weights, gradients, optimizer = _states(shared, spec, traffic, holding)
    return PartCost(forward_s=seen_forward * scale, backward_s=seen_backward * scale, weight_gradient_s=work.weight_gradient_s * scale, parts=parts,
                    weights_bytes=weights, gradients_bytes=gradients, optimizer_bytes=optimizer, activation_bytes=kept.kept)


def _recompute(shared: Setting, spec: UnitSpec, stack: Stack, share: Share, forward_s: float, first_matrix_s: float, elementwise_s: float,
               attention_s: float) -> tuple[float, float]:
    """(share of the forward launches repeated, seconds) of recomputation: full repeats the whole forward, collectives included; partial norms, activation
    and the first FFN matrix; selective the attention core of unfused kernels, or whole operators where the stack checkpoints so."""
    if spec.recompute == "full":
        return 1.0, forward_s
    if spec.recompute == "partial":
        return 0.5, first_matrix_s + shared.constants.elementwise.recomputed_share_partial * elementwise_s
    if spec.recompute == "selective":
        if stack.selective_time > 0.0:
            return stack.selective_time, stack.selective_time * forward_s
        if share.kernel == "unfused":
            return 0.25, attention_s
    return 0.0, 0.0


def _host_floor(shared: Setting, spec: UnitSpec, stack: Stack, layer_class: LayerClass, again_share: float) -> float:
    """Least seconds per layer and micro-batch, forward, recompute and backward together: the host cannot launch kernels faster.

    One hard maximum over all three, because the launch queue lets the surplus of backward hide the launches of forward.
    """
    host = shared.constants.host
    seconds = host.forward_s + host.backward_s + again_share * (host.forward_s + host.recompute_s)
    if spec.tp > 1:
        seconds += host.tensor_s * (spec.tp / 8.0) ** 2
    return stack.host * (seconds + (host.moe_s if layer_class.moe else 0.0))


def _end(shared: Setting, spec: UnitSpec, traffic: DataTraffic, work: ends.EndWork, holding: Holding, activation_bytes: float) -> PartCost:
    forward, backward = work.forward_s + work.tensor_forward_s, work.backward_s + work.tensor_backward_s
    gathers = _gathers(shared, spec, traffic, holding)
    seen_forward, seen_backward = _visible(shared, forward, gathers[0]), _visible(shared, backward, gathers[1])
    parts = TimeParts(compute_s=work.forward_s + work.backward_s, tensor_comm_s=work.tensor_forward_s + work.tensor_backward_s,
                      data_comm_s=(seen_forward - forward) + (seen_backward - backward))
    weights, gradients, optimizer = _states(shared, spec, traffic, holding)
    return PartCost(forward_s=seen_forward, backward_s=seen_backward, weight_gradient_s=work.weight_gradient_s, parts=parts, weights_bytes=weights,
                    gradients_bytes=gradients, optimizer_bytes=optimizer, activation_bytes=activation_bytes)


def _embedding(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack, traffic: DataTraffic) -> PartCost:
    share = share_of(shared, machine, spec, stack)
    work = ends.embedding_work(shared, machine, _path_of(shared, machine), share)
    return _end(shared, spec, traffic, work, _embedding_holding(shared, spec), 0.0)


def _embedding_holding(shared: Setting, spec: UnitSpec) -> Holding:
    return Holding(dense=embedding_parameters(shared.model) / spec.tp)


def _head_holding(shared: Setting, spec: UnitSpec) -> Holding:
    """Output layer (a copy of the embedding where tied), final norm, and multi-token-prediction layers, which sit with the loss."""
    model = shared.model
    output = head_parameters(model) + (model.vocab_size * model.hidden_size if model.tied_embeddings else 0)
    if not model.mtp_layers:
        return Holding(dense=output / spec.tp + final_parameters(model))
    layer = layer_parameters(model, shared.layers[-1])
    extra = mtp_parameters(model) - model.mtp_layers * layer.experts
    return Holding(dense=(output + extra) / spec.tp + final_parameters(model), experts=model.mtp_layers * layer.experts / (spec.ep * spec.etp))


def _head(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack, traffic: DataTraffic, last_layer: PartCost) -> PartCost:
    share, model = share_of(shared, machine, spec, stack), shared.model
    work = ends.head_work(shared, machine, _path_of(shared, machine), share, spec.vocabulary_parallel_loss)
    residual = 2.0 * share.tokens * model.hidden_size * share.replicated * shared.activation_element / 2.0
    single = _end(shared, spec, traffic, work, _head_holding(shared, spec), residual)
    n = model.mtp_layers
    if not n:
        return single
    parts = TimeParts(**{name: getattr(single.parts, name) * (1 + n) + getattr(last_layer.parts, name) * n for name in TimeParts.__dataclass_fields__})
    return PartCost(forward_s=single.forward_s * (1 + n) + last_layer.forward_s * n, backward_s=single.backward_s * (1 + n) + last_layer.backward_s * n,
                    weight_gradient_s=single.weight_gradient_s * (1 + n) + last_layer.weight_gradient_s * n, parts=parts,
                    weights_bytes=single.weights_bytes, gradients_bytes=single.gradients_bytes, optimizer_bytes=single.optimizer_bytes,
                    activation_bytes=residual + n * last_layer.activation_bytes)


def _tied_holding(shared: Setting, spec: UnitSpec) -> Holding:
    return Holding(dense=shared.model.vocab_size * shared.model.hidden_size / spec.tp if shared.model.tied_embeddings else 0.0)


def _shared_ends(shared: Setting, spec: UnitSpec, traffic: DataTraffic) -> PartCost:
    weights, gradients, optimizer = _states(shared, spec, traffic, _tied_holding(shared, spec))
    return PartCost(weights_bytes=weights, gradients_bytes=gradients, optimizer_bytes=optimizer)


def _sync(shared: Setting, machines: list[Machine], spec: UnitSpec, traffic: DataTraffic, layers: dict[LayerClass, PartCost], embedding: PartCost,
          head: PartCost) -> tuple[SyncPiece, float]:
    """The time after the drain, and what share of it is the optimizer step in an average stage (all layers of the model and both ends)."""

    def traffic_s(holding: Holding, backward_s: float) -> float:
        return synchronise.exposed_s(shared, synchronise.traffic_s(shared, spec, traffic, holding), backward_s)

    def step_s(holding: Holding) -> float:
        return max(synchronise.optimizer_s(shared, m, spec, traffic, holding) for m in machines)

    holdings = {cls: holding_of(shared, spec, cls) for cls in shared.classes}
    first, last, tied = _embedding_holding(shared, spec), _head_holding(shared, spec), _tied_holding(shared, spec)
    tied_s = synchronise.tied_gradient_s(shared, spec)
    constant = shared.constants.data_parallel.step_overhead_s
    waits = {cls: traffic_s(holdings[cls], layers[cls].backward_s) for cls in shared.classes}
    steps = {cls: step_s(holdings[cls]) for cls in shared.classes}
    ends_s = (traffic_s(first, embedding.backward_s) + tied_s + step_s(first), traffic_s(last, head.backward_s) + tied_s + step_s(last))
    piece = SyncPiece(
        constant_s=constant + synchronise.latency_s(spec, traffic), per_layer_s={cls: waits[cls] + steps[cls] for cls in shared.classes},
        embedding_s=ends_s[0], head_s=ends_s[1],
        shared_ends_s=2.0 * tied_s + max(0.0, traffic_s(last, head.backward_s) - traffic_s(_less(last, tied), head.backward_s)) + step_s(tied))
    optimizer = constant + sum(steps[cls] for cls in shared.layers) + step_s(first) + step_s(last)
    total = piece.constant_s + sum(piece.per_layer_s[cls] for cls in shared.layers) + ends_s[0] + ends_s[1]
    return piece, min(1.0, optimizer / total) if total > 0.0 else 0.0


def _less(holding: Holding, other: Holding) -> Holding:
    return Holding(dense=holding.dense - other.dense, experts=holding.experts - other.experts)


def _buffers(shared: Setting, spec: UnitSpec, stack: Stack, share: Share) -> float:
    """Largest short-lived memory over all layer classes: recompute working set, temporaries, and under ZeRO-3 the gathered layers with one gradient."""
    largest = 0.0
    for cls in shared.classes:
        size = memory.activation_bytes(shared, cls, share, spec.recompute, stack.selective_memory).working
        if spec.zero_stage >= 3:
            held = holding_of(shared, spec, cls)
            layer = (held.dense + held.experts) * shared.activation_element
            size += layer * (shared.constants.memory.gathered_layers + 1.0)
        largest = max(largest, size)
    return largest


def _active_dimensions(spec: UnitSpec) -> int:
    """Parallel dimensions with communication buffers. The pipeline always counts: a unit does not know how many stages there are."""
    return 1 + sum((spec.tp > 1, spec.cp > 1, spec.ep > 1, synchronise.data_ranks(spec) > 1))


def edge_seconds(problem: Problem, sender: UnitSpec, receiver: UnitSpec, same_node: bool, virtual_stages: int) -> float:
    """Visible seconds of one micro-batch's activations over a stage boundary, one way.

    b s h elements, less the split over dp and cp, and over t where the stack scatters (or sequence parallelism holds shards): the coarser of the two sides.
    Several node groups: the slowest pair. With virtual stages transfers overlap compute, and only a share of them shows.
    """
    shared = setting(problem)
    constants = shared.constants
    stack = constants.stack(sender.framework)
    tokens_elements = sender.micro_batch_size * shared.workload.seq_len * shared.model.hidden_size
    size = 0.0
    for side in (sender, receiver):
        scattered = stack.scatter_edges or side.sequence_parallel
        size = max(size, tokens_elements * shared.activation_element * (1.0 if scattered else stack.edge_copies) / (side.dp * side.cp * (side.tp if scattered else 1)))
    crossing = sender.replicas * min(sender.gpus_per_replica, receiver.gpus_per_replica)
    slowest = 0.0
    for one in sender.groups:
        for other in receiver.groups:
            if one == other:
                bandwidth, latency = nearest(constants, problem.cluster.group(one), same_node)
            else:
                bandwidth, latency = between(constants, problem.cluster, one, other, crossing)
            slowest = max(slowest, latency + size / bandwidth)
    return slowest * (constants.communication.interleaved_edge_share if virtual_stages > 1 else 1.0)
