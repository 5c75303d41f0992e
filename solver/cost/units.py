"""Costs of a unit: the tables from which both `price` and the search compose stages."""
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from solver.catalog.efficiency import Stack
from solver.cost import memory, profiles, synchronise
from solver.cost.alike import everywhere, larger, largest, many, smaller, smallest, somewhere, where
from solver.cost.collectives import send_s
from solver.cost.communicators import boundary_link
from solver.cost.machine import Machine
from solver.cost.measured import Part
from solver.cost.parts import (
    decoder_embedding,
    embedding_holding,
    embedding_part,
    head_holding,
    head_input_bytes,
    head_part,
    holding_of,
    layer_part,
    share_of,
    states,
)
from solver.cost.setting import Setting, memoised, setting
from solver.cost.share import Share
from solver.cost.synchronise import DataTraffic, Holding
from solver.cost.unit import LayerCosts, PartCost, SyncPiece, UnitCosts, UnitSpec
from solver.domain.estimate import TimeParts
from solver.domain.model import LayerClass
from solver.domain.problem import Problem
from solver.domain.profiles import EMBEDDING, HEAD

UNITS_KEPT = 16_384
MANY_PAIRS = 256                                           # beyond which equal transfers are found by sorting


def unit_costs(problem: Problem, spec: UnitSpec) -> UnitCosts:
    """What a stage of this unit spends per layer of each class, at its ends, in memory and after the drain; memoised per problem.

    Several node groups: every part at its slowest member, capacity of the smallest. A maximum over layer classes (working sets) is taken over all
    classes of the model, so that memory stays affine in the layers that a stage holds: too much where a stage holds only small ones.
    """
    return _table(problem)(spec)


def _build(shared: Setting) -> Callable[[UnitSpec], UnitCosts]:
    return lru_cache(maxsize=UNITS_KEPT)(lambda spec: costs_under(shared, spec))


_table = memoised(_build)


def layer_costs(problem: Problem, spec: UnitSpec, *, least: bool = False) -> LayerCosts:
    """The part of `unit_costs` that bounds on whole families need: layers and room alone. `least`: times bounded as in `layer_part`."""
    return layer_costs_under(setting(problem), spec, least=least)


def layer_costs_under(shared: Setting, spec: UnitSpec, *, least: bool = False) -> LayerCosts:
    """The same under a problem's setting."""
    return _layer_costs(shared, spec, synchronise.data_traffic(shared, spec), least=least)


def _layer_costs(shared: Setting, spec: UnitSpec, traffic: DataTraffic, *, least: bool = False) -> LayerCosts:
    stack = shared.constants.stack(spec.framework)
    machines = [(shared.floor_machines if least else shared.machines)[name] for name in spec.groups]
    buffers = [_buffers(shared, m, spec, stack) for m in machines]
    return LayerCosts(
        layers={cls: _slowest([layer_part(shared, m, spec, stack, traffic, cls, least=least) for m in machines]) for cls in shared.classes},
        buffers_bytes=largest(b[0] for b in buffers), head_buffers_bytes=largest(b[1] for b in buffers),
        capacity_bytes=smallest(memory.allocator_capacity_bytes(shared, m.capacity_bytes, _active_dimensions(spec)) for m in machines))


def costs_under(shared: Setting, spec: UnitSpec) -> UnitCosts:
    """What `unit_costs` remembers, made anew."""
    stack = shared.constants.stack(spec.framework)
    traffic = synchronise.data_traffic(shared, spec)
    machines = [shared.machines[name] for name in spec.groups]
    held = _layer_costs(shared, spec, traffic)
    layers = held.layers
    embedding = _slowest([embedding_part(shared, m, spec, stack, traffic) for m in machines])
    head = _slowest([head_part(shared, m, spec, stack, traffic, layers[shared.layers[-1]]) for m in machines])
    share = share_of(shared, machines[0], spec, stack)
    piece, optimizer_share = _sync(shared, machines, spec, traffic, layers, embedding, head)
    return UnitCosts(
        spec=spec, layers=layers, embedding=embedding, head=head,
        logits_bytes=_logits(shared, spec, share),
        buffers_bytes=held.buffers_bytes, head_buffers_bytes=held.head_buffers_bytes, capacity_bytes=held.capacity_bytes, sync=(piece,),
        optimizer_share=optimizer_share,
        shared_ends=_shared_ends(shared, spec, traffic))


def _logits(shared: Setting, spec: UnitSpec, share: Share) -> float:
    """Bytes of the last stage's logits: by formula, or what a profile says that the head holds, less its input, kept of each micro-batch."""
    measured = profiles.head_bytes(shared, spec)
    if measured is None:
        return memory.logits_bytes(shared, share, spec.vocabulary_parallel_loss)
    return larger(0.0, measured - head_input_bytes(shared, share))


def _slowest(costs: list[PartCost]) -> PartCost:
    """The part at its slowest member, forward and backward each; waiting for the other members counts as computation. Memory likewise at its
    largest."""
    if len(costs) == 1:
        return costs[0]
    forward, backward = largest(c.forward_s for c in costs), largest(c.backward_s for c in costs)
    return replace(costs[0], forward_s=forward, backward_s=backward, weight_gradient_s=largest(c.weight_gradient_s for c in costs),
                   parts=_parts_of_slowest(costs, forward, backward), activation_bytes=largest(c.activation_bytes for c in costs))


def _parts_of_slowest(costs: list[PartCost], forward_s: float, backward_s: float) -> TimeParts:
    """By cause, what the slowest member takes, and waiting; left out of arrays, for which nobody asks."""
    if many(forward_s):
        return TimeParts()
    slowest = max(costs, key=lambda c: c.forward_s + c.backward_s)
    waiting = (forward_s - slowest.forward_s) + (backward_s - slowest.backward_s)
    return replace(slowest.parts, compute_s=slowest.parts.compute_s + waiting)


def _tied_holding(shared: Setting, spec: UnitSpec) -> Holding:
    return Holding(dense=shared.model.vocab_size * shared.model.hidden_size / spec.tp if shared.model.tied_embeddings else 0.0)


def _shared_ends(shared: Setting, spec: UnitSpec, traffic: DataTraffic) -> PartCost:
    """States of the copies of the embedding that a single stage does not hold: the output layer's where tied, the decoder's."""
    copies = _more(_tied_holding(shared, spec), decoder_embedding(shared, spec))
    weights, gradients, optimizer = states(shared, spec, traffic, copies)
    return PartCost(weights_bytes=weights, gradients_bytes=gradients, optimizer_bytes=optimizer)


def _sync(shared: Setting, machines: list[Machine], spec: UnitSpec, traffic: DataTraffic, layers: dict[LayerClass, PartCost], embedding: PartCost,
          head: PartCost) -> tuple[SyncPiece, float]:
    """The time after the drain, and what share of it is the optimizer step in an average stage (all layers of the model and both ends)."""

    stack = shared.constants.stack(spec.framework)

    def traffic_s(holding: Holding, part: PartCost) -> float:
        return synchronise.exposed_s(shared, stack, spec, synchronise.traffic_s(shared, spec, traffic, holding), part.forward_s, part.backward_s)

    def step_s(holding: Holding, part: Part | None = None) -> float:
        measured = profiles.update_seconds(shared, spec, part, synchronise.owned_share(spec, traffic, holding)) if part is not None else None
        return measured if measured is not None else largest(synchronise.optimizer_s(shared, m, spec, traffic, holding) for m in machines)

    copy = decoder_embedding(shared, spec)
    holdings = {cls: _more(holding_of(shared, spec, cls), copy) if cls.entry else holding_of(shared, spec, cls) for cls in shared.classes}
    first, last, tied = embedding_holding(shared, spec), head_holding(shared, spec), _tied_holding(shared, spec)
    tied_s = synchronise.tied_gradient_s(shared, spec)
    constant = shared.constants.data_parallel.step_overhead_s
    waits = {cls: traffic_s(holdings[cls], layers[cls]) + (tied_s if cls.entry else 0.0) for cls in shared.classes}
    steps = {cls: step_s(holdings[cls], cls) for cls in shared.classes}
    step_ends = step_s(first, EMBEDDING), step_s(last, HEAD)
    head_tied_s = tied_s if shared.model.tied_embeddings else 0.0
    ends_s = (traffic_s(first, embedding) + tied_s + step_ends[0], traffic_s(last, head) + head_tied_s + step_ends[1])
    twice_s = sum(larger(0.0, traffic_s(holdings[cls], layers[cls]) - traffic_s(_less(holdings[cls], copy), layers[cls])) + tied_s
                  for cls in shared.classes if cls.entry)  # of the decoder's embedding where one stage holds both
    piece = SyncPiece(
        constant_s=constant + synchronise.latency_s(spec, traffic), per_layer_s={cls: waits[cls] + steps[cls] for cls in shared.classes},
        embedding_s=ends_s[0], head_s=ends_s[1],
        shared_ends_s=tied_s + head_tied_s + twice_s + step_s(_more(tied, copy))
        + larger(0.0, traffic_s(last, head) - traffic_s(_less(last, tied), head)))
    optimizer = constant + sum(n * steps[cls] for cls, n in shared.counts.items()) + sum(step_ends)
    total = piece.constant_s + sum(n * piece.per_layer_s[cls] for cls, n in shared.counts.items()) + ends_s[0] + ends_s[1]
    return piece, smaller(1.0, optimizer / total) if everywhere(total > 0.0) else 0.0


def _more(holding: Holding, other: Holding) -> Holding:
    return Holding(dense=holding.dense + other.dense, experts=holding.experts + other.experts)


def _less(holding: Holding, other: Holding) -> Holding:
    return Holding(dense=holding.dense - other.dense, experts=holding.experts - other.experts)


def _buffers(shared: Setting, machine: Machine, spec: UnitSpec, stack: Stack) -> tuple[float, float]:
    """Bytes beside what is kept, in (any stage, the last stage beside its logits): library workspaces, under ZeRO-3 the gathered layers with one
    gradient, and the largest working memory of a layer over all classes. That comes after the loss: where logits are freed by then, it reuses theirs.

    Under ZeRO-3 the last stage keeps both ends gathered from forward to backward, as FSDP does with what it wraps in no layer: taken to be the only
    stage, as frameworks demand of ZeRO-3.
    """
    share, working, gathered, ends = share_of(shared, machine, spec, stack), 0.0, 0.0, 0.0
    whole = spec.zero_stage >= 3
    if somewhere(whole):
        ends = embedding_holding(shared, spec).dense + head_holding(shared, spec).dense - _tied_holding(shared, spec).dense
        ends = where(whole, ends, 0.0)
    for cls in shared.classes:
        working = larger(working, profiles.layer_bytes(shared, machine, cls, share, spec.recompute, stack.selective_memory).working)
        if somewhere(whole):
            held = holding_of(shared, spec, cls)
            layers = shared.constants.memory.gathered_layers + 1.0
            gathered = larger(gathered, where(whole, (held.dense + held.experts) * shared.activation_element * layers, 0.0))
    fixed = memory.workspace_bytes(shared, machine) + gathered
    room = _logits(shared, spec, share) if memory.logits_make_room(shared, share, spec.vocabulary_parallel_loss) else 0.0
    return fixed + working, fixed + ends * shared.activation_element + larger(0.0, working - room)


def _active_dimensions(spec: UnitSpec) -> int:
    """Parallel dimensions with communication buffers. The pipeline always counts: a unit does not know how many stages there are."""
    return 1 + sum((spec.tp > 1, spec.cp > 1, spec.ep > 1, synchronise.data_ranks(spec) > 1))


def edge_seconds(problem: Problem, sender: UnitSpec, receiver: UnitSpec, same_node: bool, virtual_stages: int, tensors: int = 1) -> float:
    """Visible seconds of one micro-batch's activations over a stage boundary, one way.

    `tensors` of b s h elements (see `pipeline.tensors_across`), less the split over dp and cp, and over t where the stack scatters (or sequence
    parallelism holds shards): the coarser of the two sides; measured outputs of layers count in their place. Several node groups: the slowest pair.
    With virtual stages transfers overlap the compute of a chunk, and of what it can hide only a share shows; a chunk is taken to be as short as can
    be, one layer, so that slow links are never priced below what they can carry.
    """
    shared = setting(problem)
    slowest = boundary_seconds(shared, sender, receiver, same_node, tensors)
    if virtual_stages == 1:
        return slowest
    hidden = min(slowest, min(part.forward_s for part in unit_costs(problem, sender).layers.values()))
    return slowest - (1.0 - shared.constants.communication.interleaved_edge_share) * hidden


def boundary_seconds(shared: Setting, sender: UnitSpec, receiver: UnitSpec, same_node: bool, tensors: int = 1) -> float:
    """Seconds that the transfer itself takes, whatever hides it."""
    stack = shared.constants.stack(sender.framework)
    size = max(_boundary_bytes(shared, stack, side, tensors) for side in (sender, receiver))
    crossing = sender.replicas * min(sender.gpus_per_replica, receiver.gpus_per_replica)
    return _transfer_s(shared, sender.groups, receiver.groups, same_node, crossing, size)


def _boundary_bytes(shared: Setting, stack: Stack, side: UnitSpec, tensors: int) -> float:
    """Bytes that each GPU of a stage hands over (or takes) per micro-batch."""
    scattered = stack.scatter_edges or side.sequence_parallel
    ranks, copies = (side.tp, 1.0) if scattered else (1, stack.edge_copies)
    measured = profiles.boundary_bytes(shared, side)
    elements = side.micro_batch_size * shared.workload.seq_len * shared.model.hidden_size
    whole = elements * shared.activation_element if measured is None else measured * side.dp * side.cp
    return tensors * whole * copies / (side.dp * side.cp * ranks) * shared.constants.communication.edge_bytes


def _transfer_s(shared: Setting, senders: tuple[str, ...], receivers: tuple[str, ...], same_node: bool, crossing: int, size_bytes: float) -> float:
    """Of the slowest pair of node groups."""
    return max(send_s(boundary_link(shared, one, other, same_node, crossing), size_bytes) for one in senders for other in receivers)


def edge_table(problem: Problem, specs: Sequence[UnitSpec], near: NDArray[np.bool_], virtual_stages: int, tensors: int = 1) -> NDArray[np.float64]:
    """[senders, receivers] `edge_seconds` between all pairs of units of one framework; where `near` [senders, receivers] the faster of both
    placements."""
    shared = setting(problem)
    stack = shared.constants.stack(specs[0].framework)
    sides = np.array([_boundary_bytes(shared, stack, spec, tensors) for spec in specs])
    gpus = np.array([spec.replicas * spec.gpus_per_replica for spec in specs])
    sizes, crossing, seconds = np.maximum.outer(sides, sides), np.minimum.outer(gpus, gpus), np.zeros((len(specs), len(specs)))
    sets = list(dict.fromkeys(spec.groups for spec in specs))
    index = np.array([sets.index(spec.groups) for spec in specs])
    for a, b in product(range(len(sets)), repeat=2):
        rows, columns = np.nonzero(index == a)[0], np.nonzero(index == b)[0]
        seconds[np.ix_(rows, columns)] = _pairs_s(shared, sets[a], sets[b], sizes[np.ix_(rows, columns)], crossing[np.ix_(rows, columns)],
                                                  near[np.ix_(rows, columns)])
    if virtual_stages > 1:
        least = np.array([min(part.forward_s for part in unit_costs(problem, spec).layers.values()) for spec in specs])
        seconds -= (1.0 - shared.constants.communication.interleaved_edge_share) * np.minimum(seconds, least[:, None])
    return seconds


def _pairs_s(shared: Setting, senders: tuple[str, ...], receivers: tuple[str, ...], sizes: NDArray[np.float64], crossing: NDArray[np.int64],
             near: NDArray[np.bool_]) -> NDArray[np.float64]:
    """`_transfer_s` of an array of sizes and numbers of crossing GPUs, each distinct triple once."""
    if not _shares_links(shared, senders, receivers):
        crossing = np.ones_like(crossing)
    if sizes.size > MANY_PAIRS:
        distinct, of = np.unique(np.stack([sizes.ravel(), crossing.ravel().astype(float), near.ravel().astype(float)]), axis=1, return_inverse=True)
        triples, index = distinct.T.tolist(), of.reshape(-1)
    else:
        triples, index = list(zip(sizes.ravel().tolist(), crossing.ravel().tolist(), near.ravel().tolist(), strict=True)), np.arange(sizes.size)
    known: dict[tuple[float, ...], float] = {}
    for size, n, together in map(tuple, triples):
        if (size, n, together) not in known:
            known[size, n, together] = min(_transfer_s(shared, senders, receivers, side, int(n), size) for side in {False, bool(together)})
    return np.array([known[tuple(triple)] for triple in triples])[index].reshape(sizes.shape)


def _shares_links(shared: Setting, senders: tuple[str, ...], receivers: tuple[str, ...]) -> bool:
    """Whether some link between the groups has a bandwidth that all crossing GPUs share."""
    links = [shared.problem.cluster.link_between(one, other) for one in senders for other in receivers if one != other]
    return any(link is not None and link.bandwidth_gb_s is None for link in links)
