"""The tree of what has not been excluded yet, each node with a proved lower bound; explored least bound first.

Contexts open into families (micro-batch sizes), these into outer choices with free or with alike stages, alike ones into schedules. A child's bound
is never below its parent's. Which arguments make a bound hold is said where it is computed; tests/solver/search attacks each by random problems.
"""
import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from solver.search.bounds import flat_bound, quick_bound, quick_work
from solver.search.budget import Worth
from solver.search.probes import Probe, alike_bound, family_bound, fits, free_bound, least_work, probe
from solver.search.rounds import round_bounds
from solver.search.space import Alike, Choice, Context, Kind, Space, divisors
from solver.search.tables import TableFactory, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All replica counts of a context and micro-batch size."""

    context: Context
    micro_batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """An outer choice whose stages may differ."""

    choice: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeStages:
    """An outer choice whose stages share a tensor degree (and recompute, where all must be alike): all its schedules."""

    choice: Choice
    alike: Alike


Node = Context | Family | Free | AlikeStages | Choice      # a Choice is to be solved


class Frontier:
    """A heap of nodes. Ties open in the order in which they were made, so a run repeats itself."""

    def __init__(self, space: Space, factory: TableFactory, stop: Callable[[], bool] = lambda: False, worth: Worth | None = None) -> None:
        self.space, self.factory, self.stop, self.worth = space, factory, stop, worth
        self._rates = worth.of_groups([g.name for g in space.groups]) if worth is not None else None
        self._heap: list[tuple[float, int, Node]] = []
        self._made = 0
        self.candidates, self.pruned = 0, 0
        for context in space.contexts():
            if space.degrees(context):
                self._push(0.0, context)

    def _push(self, bound: float, node: Node) -> None:
        self._made += 1
        heapq.heappush(self._heap, (bound, self._made, node))

    def put_back(self, bound: float, choice: Choice) -> None:
        """A choice that is excluded up to `bound` only."""
        self._push(bound, choice)

    def least_bound(self) -> float:
        """No plan in an unexplored node is faster."""
        return self._heap[0][0] if self._heap else float("inf")

    def advance(self, cutoff: float) -> tuple[float, Choice] | bool:
        """One step: the choice with the least bound, True where a node was opened instead, False where nothing below `cutoff` is left."""
        if not self._heap or self._heap[0][0] >= cutoff:
            self.pruned += len(self._heap)
            self._heap.clear()
            return False
        bound, _, node = heapq.heappop(self._heap)
        if isinstance(node, Choice):
            return bound, node
        for child_bound, child in self._children(node, cutoff):
            if self.stop():                                # half open: what it may still hold keeps its bound
                self._push(bound, node)
                break
            self.candidates += isinstance(child, Choice)
            at_least = max(bound, child_bound)
            if at_least < cutoff:
                self._push(at_least, child)
            else:
                self.pruned += 1
        return True

    def _children(self, node: Node, cutoff: float) -> Iterator[tuple[float, Node]]:
        if isinstance(node, Context):
            yield from self._families(node, cutoff)
        elif isinstance(node, Family):
            yield from self._choices(node, cutoff)
        elif isinstance(node, Free):
            kinds = self.space.kinds(node.choice)
            tables = self._tables(node.choice, kinds) if kinds else None
            if tables is not None:
                yield quick_bound(tables), node.choice
        elif isinstance(node, AlikeStages):
            yield from self._schedules(node, cutoff)

    def _probe(self, context: Context, micro_batch_size: int, fastest: bool = False) -> Probe:
        """`fastest`: the recompute mode that computes least, alone."""
        modes = self.space.recompute_modes()
        key = (tuple(self.space.gpus), self.space.tensor_degrees, modes, context, micro_batch_size, fastest)
        found = self.factory.probes.get(key)
        if found is None:
            found = probe(self.space, self.factory, context, micro_batch_size, modes[:1] if fastest else modes)
            self.factory.probes[key] = found
        return replace(found, fit=fits(self.space, found.degrees)) if self.space.budgets else found

    def _families(self, context: Context, cutoff: float) -> Iterator[tuple[float, Node]]:
        """Micro-batch sizes, the largest first.

        τ(b) / b is no larger than τ(c) / c for a divisor c of b (larger GEMMs are no less efficient and no worse aligned, latencies are shared), so a
        size bounds its divisors, and widths too.
        """
        batch, sizes = self.space.workload.global_batch_size, self.space.micro_batch_sizes()
        fastest = self.space.recompute_modes()[0] == "none"
        while sizes:
            b = sizes.pop()
            bound = family_bound(self._probe(context, b, fastest=fastest), self.space.most_value, context.cp, batch // b)
            if self._worthless(self._probe(context, b, fastest=fastest), context.cp, batch // b):
                bound = float("inf")
            yield bound, Family(context=context, micro_batch_size=b)
            if bound >= cutoff:
                sizes = [c for c in sizes if b % c]

    def _choices(self, family: Family, cutoff: float) -> Iterator[tuple[float, Node]]:
        if self._dominated(family):
            return
        c, layers = family.context, self.space.model.num_layers
        p, modes = self._probe(c, family.micro_batch_size), self.space.recompute_modes()
        for replicas in self.space.replica_counts(c.cp, family.micro_batch_size):
            for zero in self.space.zero_stages():
                choice = self.space.base(c, family.micro_batch_size, replicas, zero)
                m, name = choice.micro_batches, self.space.flat_name()
                if zero < 2 and not self.space.alike and name is not None:
                    yield self._free_bound(c, family.micro_batch_size, zero, choice, cutoff), Free(choice=replace(choice, schedule=name))
                for tp in p.degrees:
                    for alike in self.space.alikes(choice, tp):
                        mode = modes.index(alike.recompute) if alike.recompute is not None else None
                        narrow = p if alike.width == 1 else self._probe(c, family.micro_batch_size // alike.width)
                        if not self._worthless(narrow, c.cp, m * replicas * alike.width, tp, mode):
                            bound = alike_bound(narrow, tp, mode, zero, replicas * alike.width, c.cp, m, layers, cutoff,
                                                self.space.constraints.max_pp)
                            yield bound, AlikeStages(choice=choice, alike=alike)

    def _worthless(self, p: Probe, cp: int, rounds: int, degree: int | None = None, mode: int | None = None) -> bool:
        """Whether no plan of a family is worth enough, however long it may take."""
        if self.worth is None or self._rates is None:
            return False
        return least_work(p, self._rates, cp, rounds, degree, mode) >= self.worth.limit

    def _tables(self, choice: Choice, kinds: list[Kind]) -> Tables | None:
        """The tables of a choice; None where no plan of it is worth enough."""
        if self.worth is None:
            return self.factory.tables(choice, kinds)
        known = self.factory.works.get(choice)
        if known is not None and known >= self.worth.limit:
            return None
        t = self.factory.tables(choice, kinds)
        if known is None:
            rates = np.array([self.worth.of_groups(s).mean() for s in t.resources.sets])
            known = self.factory.works[choice] = quick_work(t, rates)
        return t if known < self.worth.limit else None

    def _dominated(self, family: Family) -> bool:
        """Whether a smaller Ulysses degree is at least as good for every stage; hidden traffic makes many alike. Only layers depend on the degree."""
        sizes = [family.micro_batch_size // w for w in divisors(family.micro_batch_size)]
        for ulysses in divisors(family.context.ulysses)[:-1]:
            other = replace(family.context, ulysses=ulysses)
            if all(self._probe(family.context, b).no_better_than(self._probe(other, b)) for b in sizes):
                return True
        return False

    def _free_bound(self, c: Context, micro_batch_size: int, zero: int, choice: Choice, cutoff: float) -> float:
        """Widths w | b cost what width 1 does on b / w: the least over the divisors."""
        least = float("inf")
        for width in divisors(micro_batch_size):
            if choice.replicas * width * c.cp <= sum(self.space.gpus.values()):
                p = self._probe(c, micro_batch_size // width)
                least = min(least,
                            free_bound(p, zero, choice.replicas * width, c.cp, choice.micro_batches, self.space.model.num_layers,
                                       self.space.most_value, cutoff))
        return least

    def _schedules(self, node: AlikeStages, cutoff: float) -> Iterator[tuple[float, Node]]:
        name, alike = self.space.flat_name(), node.alike
        choice = replace(node.choice, alike=alike)
        kinds = self.space.kinds(choice)
        if not kinds:
            return
        if name is not None and self.space.needs_alike(node.choice, alike):
            flat = replace(choice, schedule=name)
            table = self._tables(flat, kinds)
            if table is not None:
                yield flat_bound(table, cutoff, self.space.constraints.max_pp), flat
        counts = list(self.space.rounds(node.choice, alike))
        if counts:
            longest = replace(choice, schedule="interleaved", stages=max(p for p, _ in counts), virtual_stages=max(v for _, v in counts))
            hidden = self.space.kinds(longest)             # gradient traffic hides best with the most stages and virtual stages: a bound for all
            tables = self._tables(replace(longest, stages=None, virtual_stages=2), hidden)
            if tables is None:
                return
            for (stages, v), bound in zip(counts, round_bounds(tables, counts, cutoff), strict=True):
                yield bound, replace(choice, schedule="interleaved", stages=stages, virtual_stages=v)
