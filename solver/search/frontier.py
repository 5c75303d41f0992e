"""The tree of what has not been excluded yet, each node with a proved lower bound; explored least bound first.

Families (context, micro-batch, experts) open into replicas, these into ZeRO stages and schedules, these into solves. A child's bound is never below its parent's.
Which arguments make a bound hold is said where it is computed; tests/solver/search attacks each by random problems.
"""
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from solver.search.bounds import SLACK, quick_bound, simplex_grid
from solver.search.rounds import round_bound
from solver.search.space import Alike, Choice, Kind, Space
from solver.search.tables import TableFactory, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """All micro-batch sizes of one context, expert and etp degree."""

    cp: int
    ulysses: int
    ep: int
    etp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All replica counts of a context and micro-batch size."""

    context: Context
    micro_batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """All schedules of an outer choice."""

    choice: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """All stage counts and virtual stages of interleaved schedules with these degrees."""

    choice: Choice
    alike: Alike


Node = Context | Family | Base | Rounds | Choice           # a Choice is to be solved


class Frontier:
    """A heap of nodes. Ties open in the order in which they were made, so a run repeats itself."""

    def __init__(self, space: Space, factory: TableFactory) -> None:
        self.space, self.factory = space, factory
        self._heap: list[tuple[float, int, Node]] = []
        self._made = 0
        self.candidates, self.pruned = 0, 0
        for cp, ulysses in space.contexts():
            for ep, etp in space.experts():
                self._push(0.0, Context(cp=cp, ulysses=ulysses, ep=ep, etp=etp))

    def _push(self, bound: float, node: Node) -> None:
        self._made += 1
        heapq.heappush(self._heap, (bound, self._made, node))

    def least_bound(self) -> float:
        """No plan in an unexplored node is faster."""
        return self._heap[0][0] if self._heap else float("inf")

    def next_choice(self, cutoff: float) -> tuple[float, Choice] | None:
        """Open nodes until a choice with a bound below `cutoff` is at the top; None when nothing below it is left. One step: see `step`."""
        while self._heap and self._heap[0][0] < cutoff:
            bound, _, node = heapq.heappop(self._heap)
            if isinstance(node, Choice):
                return bound, node
            self._open(bound, node, cutoff)
        self.pruned += len(self._heap)
        self._heap.clear()
        return None

    def _open(self, bound: float, node: Node, cutoff: float) -> None:
        for child_bound, child in self._children(node):
            at_least = max(bound, child_bound)
            if isinstance(child, Choice):
                self.candidates += 1
            if at_least < cutoff:
                self._push(at_least, child)
            else:
                self.pruned += 1

    def _children(self, node: Node) -> Iterator[tuple[float, Node]]:
        if isinstance(node, Context):
            yield from self._families(node)
        elif isinstance(node, Family):
            yield from self._bases(node)
        elif isinstance(node, Base):
            yield from self._schedules(node.choice)
        elif isinstance(node, Rounds):
            yield from self._rounds(node)

    def _families(self, context: Context) -> Iterator[tuple[float, Node]]:
        """T >= m max x >= Σ_layers min over kinds of λ gpus τ (bounds.quick_bound) with m D = G / b, so one bound serves every D.

        τ(b) / b does not grow with b (larger GEMMs are no less efficient, latencies are shared), so widths and smaller micro-batches are covered too.
        """
        batch = self.space.workload.global_batch_size
        for b in self.space.micro_batch_sizes():
            kinds = self.space.probes(context.cp, context.ulysses, context.ep, context.etp, b)
            if kinds:
                yield self._family_bound(kinds, batch // b), Family(context=context, micro_batch_size=b)

    def _family_bound(self, kinds: list[Kind], rounds: int) -> float:
        names = sorted({k.spec.groups[0] for k in kinds})
        group_gpus = np.array([self.space.gpus[n] for n in names])
        price = simplex_grid(len(names)) / group_gpus
        fee = price[:, [names.index(k.spec.groups[0]) for k in kinds]] * np.array([k.gpus for k in kinds])          # [J, K]
        units = [self.factory.unit(k) for k in kinds]
        classes = self.factory.classes
        count = {c: classes.count(c) for c in dict.fromkeys(classes)}
        value = sum(n * (fee * np.array([u.layers[c].forward_s + u.layers[c].backward_s for u in units])).min(axis=1) for c, n in count.items())
        return rounds * float(np.max(value)) * (1 - SLACK)

    def _bases(self, family: Family) -> Iterator[tuple[float, Node]]:
        """Higher ZeRO stages are no faster, so the least one bounds the others."""
        c = family.context
        for replicas in self.space.replica_counts(c.cp, family.micro_batch_size):
            least = None
            for zero in self.space.zero_stages(replicas * c.cp):
                choice = self.space.base(c.cp, c.ulysses, c.ep, c.etp, family.micro_batch_size, replicas, zero)
                if least is None:
                    tables = self._free_tables(choice)
                    least = quick_bound(replace_schedule(tables)) if tables is not None else None
                if least is not None:
                    yield least, Base(choice=choice)

    def _free_tables(self, choice: Choice) -> Tables | None:
        kinds = self.space.kinds(choice) if not self.space.alike else [k for a in self.space.alikes(choice) for k in self.space.kinds(replace(choice, alike=a))]
        if not kinds:
            return None
        return self.factory.tables(choice, list(dict.fromkeys(kinds)))

    def _schedules(self, base: Choice) -> Iterator[tuple[float, Node]]:
        for choice in self.space.flat(base):
            kinds = self.space.kinds(choice)
            if kinds:
                yield quick_bound(self.factory.tables(choice, kinds)), choice
        for alike in self.space.alikes(base):
            yield 0.0, Rounds(choice=base, alike=alike)

    def _rounds(self, node: Rounds) -> Iterator[tuple[float, Node]]:
        counts = list(self.space.rounds(node.choice, node.alike))
        kinds = self.space.kinds(replace(node.choice, schedule="interleaved", alike=node.alike)) if counts else []
        if not kinds:
            return
        tables = self.factory.tables(replace(node.choice, schedule="interleaved", alike=node.alike, virtual_stages=2), kinds)
        for stages, v in counts:
            yield round_bound(tables, stages, v), replace(node.choice, schedule="interleaved", alike=node.alike, stages=stages, virtual_stages=v)


def replace_schedule(tables: Tables) -> Tables:
    """The same tables with the steady-state bound alone, which holds for every schedule: with virtual stages the fill may be smaller than S."""
    return replace(tables, virtual_stages=max(2, tables.virtual_stages))
