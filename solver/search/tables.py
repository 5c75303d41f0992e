"""What enters the search: per-kind tables of one outer choice, in seconds and bytes, made from the cost model's units.

Layers are counted from the last: index c of a prefix table is the sum over the last c layers. `Tables` holds numbers only.
"""
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.cost import bulk
from solver.cost.unit import UnitCosts
from solver.cost.units import edge_table, unit_costs
from solver.domain.problem import Problem
from solver.domain.profiles import classes_of
from solver.search.budget import TOLERANCE, Budget, most_value, rates_by_group, usable
from solver.search.priced import PricedUnits
from solver.search.space import Choice, Kind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TABLES_KEPT = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """GPUs by set of node groups: for every union of groups, the kinds inside it may use no more than it has (Hall's condition)."""

    sets: tuple[tuple[str, ...], ...]                      # distinct `groups` of the kinds
    inside: NDArray[np.bool_]                              # [unions, sets]
    capacity: Ints                                         # [unions] GPUs
    group_gpus: Ints                                       # [groups]
    members: NDArray[np.bool_]                             # [sets, groups]
    rates: Floats                                          # [budgets, sets] what a GPU in use takes, see solver.search.budget
    limits: Floats                                         # [budgets]
    group_rates: Floats                                    # [budgets, groups]

    def most_value(self, values: Floats) -> float:
        """Upper bound on Σ values [groups] x GPUs that any plan uses."""
        return most_value(values, self.group_gpus.astype(float), self.group_rates, self.limits)

    def within_budgets(self, used: Ints) -> NDArray[np.bool_]:
        """Which rows of `used` [N, sets] keep every budget."""
        return np.asarray((used @ self.rates.T <= self.limits * (1 + TOLERANCE)).all(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """K kinds, L layers, P sync pieces. Times per micro-batch; `time` is forward + backward."""

    kinds: tuple[Kind, ...]
    layers: int
    micro_batches: int
    schedule: str
    virtual_stages: int
    time: Floats                                           # [K, L + 1] prefix
    forward: Floats                                        # [K, L + 1] prefix
    static: Floats                                         # [K, L + 1] prefix: weights, gradients, optimizer
    activation: Floats                                     # [K, L + 1] prefix, per micro-batch in flight
    head_time: Floats                                      # [K]
    head_forward: Floats
    head_static: Floats                                    # logits included
    head_activation: Floats
    embedding_time: Floats
    embedding_forward: Floats
    embedding_static: Floats
    embedding_activation: Floats
    shared_time: Floats                                    # [K] what embedding and head count twice where one stage holds both
    shared_forward: Floats
    shared_static: Floats
    shared_activation: Floats
    shared_sync: Floats                                    # [K, P]
    buffers: Floats                                        # [K]
    capacity: Floats                                       # [K] after the margin
    sync_constant: Floats                                  # [K, P]
    sync: Floats                                           # [K, P, L + 1] prefix
    sync_embedding: Floats                                 # [K, P]
    sync_head: Floats                                      # [K, P]
    edge: Floats                                           # [K upstream, K downstream] seconds one way; the upstream stage bears both directions
    edge_within: Floats                                    # the same where an encoder's output travels along
    within: int = 0                                        # boundaries with fewer layers behind them lie inside the decoder of an encoder-decoder
    wrap: Floats                                           # [K last, K first] for virtual stages
    gpus: Ints                                             # [K] of all replicas
    set_index: Ints                                        # [K] into resources.sets
    block: Ints                                            # [K] GPUs that must lie together; 1 where whatever fits by number fits
    resources: Resources

    @property
    def num_kinds(self) -> int:
        return len(self.kinds)

    def edge_s(self, upstream: int, downstream: int, behind: int) -> float:
        """Seconds one way of one boundary, with `behind` layers behind it."""
        return float((self.edge_within if behind < self.within else self.edge)[upstream, downstream])

    def edges(self, upstream: Ints, downstream: Ints, behind: Ints) -> Floats:
        """Seconds one way of boundaries between kinds, with `behind` layers behind them."""
        plain: Floats = self.edge[upstream, downstream]
        return np.where(behind < self.within, self.edge_within[upstream, downstream], plain) if self.within else plain


BY_KIND = ("time", "forward", "static", "activation", "head_time", "head_forward", "head_static", "head_activation", "embedding_time",
           "embedding_forward", "embedding_static", "embedding_activation", "shared_time", "shared_forward", "shared_static", "shared_activation",
           "shared_sync", "buffers", "capacity", "sync_constant", "sync", "sync_embedding", "sync_head", "gpus", "set_index", "block")
BY_PAIR = ("edge", "edge_within", "wrap")


def only(t: Tables, kept: NDArray[np.bool_]) -> Tables:
    """The tables of some kinds alone."""
    at = np.nonzero(kept)[0]
    fields = {name: getattr(t, name)[at] for name in BY_KIND} | {name: getattr(t, name)[np.ix_(at, at)] for name in BY_PAIR}
    return replace(t, kinds=tuple(t.kinds[i] for i in at), **fields)


class TableFactory:
    """Makes tables. The cost model is asked once per unit, and for all units at once that come up together."""

    def __init__(self, problem: Problem, margin: float, budgets: tuple[Budget, ...] = ()) -> None:
        self.problem, self.margin, self.budgets = problem, margin, budgets
        self._priced = PricedUnits(problem)
        self.gpus = usable(problem, budgets)
        self.classes = classes_of(problem.model, problem.profiles)
        self._made: dict[Choice, Tables] = {}
        self.probes: dict[object, Any] = {}                # of solver.search.probes, shared by all frontiers over this problem
        self.works: dict[Choice, float] = {}               # least worth of any plan of a choice, by solver.search.frontier
        encoder = problem.model.encoder_layers
        self._within = len(self.classes) - encoder if encoder else 0
        self._order = {cls: i for i, cls in enumerate(dict.fromkeys(self.classes))}
        counts = np.zeros((len(self._order), len(self.classes) + 1))
        for c, cls in enumerate(reversed(self.classes)):
            counts[:, c + 1] = counts[:, c]
            counts[self._order[cls], c + 1] += 1
        self.class_counts = {cls: int(counts[i, -1]) for cls, i in self._order.items()}
        self._counts = counts                              # [classes, L + 1] layers of each class among the last c
        self._blocks = {g.name: max([t.size for t in g.tiers if t.name != "network"], default=g.gpus_per_node) for g in problem.cluster.node_groups}

    def within(self, budgets: tuple[Budget, ...]) -> "TableFactory":
        """Tables under further budgets; what units cost, and probes, are shared."""
        limited = TableFactory(self.problem, self.margin, (*self.budgets, *budgets))
        limited._priced, limited._made, limited.probes, limited.works = self._priced, self._made, self.probes, self.works
        return limited

    def unit(self, kind: Kind) -> UnitCosts:
        """Costs of a kind."""
        return unit_costs(self.problem, kind.spec)

    def add(self, kinds: Iterable[Kind]) -> None:
        """Prices kinds whose tables will be asked for: the more at once, the less time each takes."""
        self._priced.add(k.spec for k in kinds)

    def tables(self, choice: Choice, kinds: list[Kind]) -> Tables:
        """The tables of a choice over its kinds, kept for a while: the same choices come up again, deepened or under the next budget."""
        kept = self._made.pop(choice, None)
        found = kept if kept is not None and list(kept.kinds) == kinds else self._tables(choice, kinds)
        self._made[choice] = found
        if len(self._made) > TABLES_KEPT:
            del self._made[next(iter(self._made))]         # the one not asked for for longest
        return replace(found, resources=self._resources(kinds)) if self.budgets else found

    def _tables(self, choice: Choice, kinds: list[Kind]) -> Tables:
        units = self._priced.of([k.spec for k in kinds])
        parts, sync, room = units.parts, units.sync, units.room
        forward, activation = parts[..., bulk.FORWARD], parts[..., bulk.ACTIVATION]                                   # [K, classes + 3]
        time = forward + parts[..., bulk.BACKWARD]
        static = parts[..., bulk.WEIGHTS] + parts[..., bulk.GRADIENTS] + parts[..., bulk.OPTIMIZER]
        embedding, head, shared = bulk.EMBEDDING, bulk.HEAD, bulk.SHARED_ENDS
        within, edge = self._within, self._edges(choice, kinds)
        return Tables(
            kinds=tuple(kinds), layers=len(self.classes), micro_batches=choice.micro_batches, schedule=choice.schedule,
            virtual_stages=choice.virtual_stages, time=self._prefix(time), forward=self._prefix(forward), static=self._prefix(static),
            activation=self._prefix(activation),
            head_time=time[:, head], head_forward=forward[:, head], head_activation=activation[:, head],
            head_static=static[:, head] + room[:, bulk.LOGITS] + room[:, bulk.HEAD_BUFFERS] - room[:, bulk.BUFFERS],
            embedding_time=time[:, embedding], embedding_forward=forward[:, embedding], embedding_static=static[:, embedding],
            embedding_activation=activation[:, embedding],
            shared_time=time[:, shared], shared_forward=forward[:, shared], shared_static=static[:, shared], shared_activation=activation[:, shared],
            buffers=room[:, bulk.BUFFERS], capacity=room[:, bulk.CAPACITY] * (1.0 - self.margin),
            sync=self._prefix(sync)[:, None], sync_constant=sync[:, bulk.CONSTANT, None], sync_embedding=sync[:, bulk.SYNC_EMBEDDING, None],
            sync_head=sync[:, bulk.SYNC_HEAD, None], shared_sync=sync[:, bulk.SYNC_SHARED_ENDS, None],
            edge=edge, edge_within=self._edges(choice, kinds, tensors=2) if within else edge, within=within,
            wrap=self._edges(choice, kinds, wrap=True) if choice.virtual_stages > 1 else np.zeros((len(kinds), len(kinds))),
            gpus=np.array([k.gpus for k in kinds], dtype=np.int64), set_index=self._set_index(kinds), block=self._blocks_of(kinds),
            resources=self._resources(kinds))

    def _prefix(self, values: Floats) -> Floats:
        """[K, L + 1] sums over the last layers, of [K, classes or more] per layer of each class."""
        sums: Floats = values[:, :len(self._order)] @ self._counts
        return sums

    def _edges(self, choice: Choice, kinds: list[Kind], wrap: bool = False, tensors: int = 1) -> Floats:
        """Optimistic where stages are small enough to share a node: the faster of near and far. The placement decides, and pricing asks it."""
        shapes = [(k.spec.groups, k.spec.tp, k.spec.dp) for k in kinds]
        rows = list(dict.fromkeys(shapes))
        first = [kinds[shapes.index(row)] for row in rows]
        found = edge_table(self.problem, [k.spec for k in first], self._near(choice, first, wrap), choice.virtual_stages, tensors)
        index = np.array([rows.index(shape) for shape in shapes])
        edges: Floats = found[np.ix_(index, index)]
        return edges

    def _near(self, choice: Choice, kinds: list[Kind], wrap: bool) -> NDArray[np.bool_]:
        """[K, K] whether two stages may lie in one block of the fabric of their group."""
        gpus = np.array([k.gpus for k in kinds])
        block = np.array([self._blocks[k.spec.groups[0]] if len(k.spec.groups) == 1 else 0 for k in kinds])
        group = np.array([list(self._blocks).index(k.spec.groups[0]) for k in kinds])
        alike = (group[:, None] == group) & (block[:, None] > 0) & (block > 0)
        near: NDArray[np.bool_] = alike & ((gpus[:, None] + gpus <= block) | (wrap and (gpus * (choice.stages or 1) <= block)[:, None]))
        return near

    def _blocks_of(self, kinds: list[Kind]) -> Ints:
        """Tensor degrees, unless these and the nodes' sizes divide each other in turn and no GPU is missing: then blocks pack without loss."""
        degrees = np.array([k.spec.tp for k in kinds], dtype=np.int64)
        used = {name for k in kinds for name in k.spec.groups}
        groups = [g for g in self.problem.cluster.node_groups if g.name in used]
        chain = sorted({*degrees.tolist(), *(g.gpus_per_node for g in groups)})
        packs = all(b % a == 0 for a, b in pairwise(chain)) and not any(g.unavailable_gpus for g in groups)
        return np.ones_like(degrees) if packs else degrees

    def _set_index(self, kinds: list[Kind]) -> Ints:
        sets = list(dict.fromkeys(k.spec.groups for k in kinds))
        return np.array([sets.index(k.spec.groups) for k in kinds], dtype=np.int64)

    def _resources(self, kinds: list[Kind]) -> Resources:
        sets = tuple(dict.fromkeys(k.spec.groups for k in kinds))
        groups = sorted({g for s in sets for g in s})
        rates, limits = rates_by_group(self.budgets, groups)
        members = np.array([[g in s for g in groups] for s in sets])
        unions = sorted({frozenset().union(*(frozenset(sets[i]) for i in range(len(sets)) if mask >> i & 1)) for mask in range(1, 2**len(sets))},
                        key=sorted) if len(sets) <= 12 else [frozenset(s) for s in sets] + [frozenset(groups)]
        return Resources(sets=sets, inside=np.array([[frozenset(s) <= u for s in sets] for u in unions]), limits=limits, group_rates=rates,
                         capacity=np.array([sum(self.gpus[g] for g in u) for u in unions], dtype=np.int64),
                         group_gpus=np.array([self.gpus[g] for g in groups], dtype=np.int64), members=members,
                         rates=rates @ (members / members.sum(axis=1, keepdims=True)).T)

