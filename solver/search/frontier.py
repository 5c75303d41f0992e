"""The tree of what has not been excluded yet, each node with a proved lower bound; explored least bound first.

Contexts open into families (micro-batch sizes), these into outer choices with free or with alike stages, alike ones into schedules. A child's bound
is never below its parent's. Which arguments make a bound hold is said where it is computed; tests/solver/search attacks each by random problems.
"""
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from solver.search.bounds import UNBOUNDED_S, flat_bound, quick_bound, quick_work, stage_count_bound
from solver.search.budget import Worth
from solver.search.capacity import capacity_bound
from solver.search.even import even_bound, even_counts, even_family_bound
from solver.search.hopeful import hopeful_kinds
from solver.search.probes import AlikeFamilies, Probe, alike_bounds, family_bound, free_bound, least_work, probe_of
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
    """An outer choice whose stages may differ, before its schedule."""

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
            at_least = max(bound, child_bound, self._even_bound(child) if self.space.tier == "even" else 0.0)
            if at_least < cutoff:
                self._push(at_least, child)
            else:
                self.pruned += 1
        return True

    def _children(self, node: Node, cutoff: float) -> Iterator[tuple[float, Node]]:
        if isinstance(node, Context):
            yield from self._families(node, cutoff)
            yield from self._free(node, cutoff)
        elif isinstance(node, Family):
            yield from self._choices(node, cutoff)
        elif isinstance(node, Free):
            kinds = hopeful_kinds(self.space, self.factory, node.choice, cutoff)
            tables = self._tables(node.choice, kinds) if kinds else None
            if tables is not None:
                yield capacity_bound(tables, quick_bound(tables), min(cutoff, UNBOUNDED_S), self.space.constraints.max_pp), node.choice
        elif isinstance(node, AlikeStages):
            yield from self._schedules(node, cutoff)

    def _even_bound(self, node: Node) -> float:
        """What equal numbers of layers cost at least; contexts and unlike stages have no such bound."""
        layers = self.space.model.num_layers
        if isinstance(node, Family):
            p = self._probe(node.context, node.micro_batch_size)
            return even_family_bound(p, node.context.cp, self.space.workload.global_batch_size // node.micro_batch_size, layers)
        choice = node.choice if isinstance(node, AlikeStages) else node
        alike = node.alike if isinstance(node, AlikeStages) else node.alike if isinstance(node, Choice) else None
        if not isinstance(choice, Choice) or alike is None:
            return 0.0
        p = self._probe(choice.context, choice.micro_batch_size // alike.width)
        mode = None if alike.recompute is None else self.space.recompute_modes().index(alike.recompute)
        return even_bound(p, alike.tp, mode, choice.zero_stage, choice.context.cp * alike.width * choice.replicas, choice.micro_batches, layers,
                          [choice.stages] if choice.stages is not None else divisors(layers))

    def _probe(self, context: Context, micro_batch_size: int, fastest: bool = False) -> Probe:
        return probe_of(self.space, self.factory, context, micro_batch_size, fastest=fastest)

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
        choices = [self.space.base(family.context, family.micro_batch_size, replicas, zero)
                   for replicas in self.space.replica_counts(family.context.cp, family.micro_batch_size) for zero in self.space.zero_stages()]
        by_width: dict[int, list[AlikeStages]] = defaultdict(list)
        for choice in choices:
            for tp in self.space.degrees(family.context):
                for alike in self.space.alikes(choice, tp):
                    by_width[alike.width].append(AlikeStages(choice=choice, alike=alike))
        for width, nodes in by_width.items():
            bounds = self._alike_bounds(family.context, family.micro_batch_size // width, nodes, cutoff)
            self.factory.add(kind for bound, node in zip(bounds, nodes, strict=True) if bound < cutoff for choice in self._flat_and_deepest(node)
                             for kind in self.space.kinds(choice))
            yield from zip(bounds, nodes, strict=True)

    def _alike_bounds(self, context: Context, micro_batch_size: int, nodes: list[AlikeStages], cutoff: float) -> list[float]:
        p, modes = self._probe(context, micro_batch_size), self.space.recompute_modes()
        families = AlikeFamilies(
            degree=np.array([p.degrees.index(n.alike.tp) for n in nodes]),
            mode=np.array([-1 if n.alike.recompute is None else modes.index(n.alike.recompute) for n in nodes]),
            zero_stage=np.array([n.choice.zero_stage for n in nodes]), replicas=np.array([n.choice.replicas * n.alike.width for n in nodes]),
            micro_batches=np.array([n.choice.micro_batches for n in nodes]))
        bounds = alike_bounds(p, families, context.cp, self.space.model.num_layers, cutoff, self.space.constraints.max_pp)
        if self.worth is None:
            return [float(bound) for bound in bounds]
        for i in np.nonzero(bounds < cutoff)[0]:
            mode, rounds = int(families.mode[i]), int(families.micro_batches[i] * families.replicas[i])
            if self._worthless(p, context.cp, rounds, nodes[i].alike.tp, mode if mode >= 0 else None):
                bounds[i] = np.inf
        return [float(bound) for bound in bounds]

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

    def _free(self, context: Context, cutoff: float) -> Iterator[tuple[float, Node]]:
        """Outer choices with unlike stages, the fewest micro-batches first: a larger micro-batch bounds its divisors, see `_families`."""
        name, hopeless, found = self.space.flat_name(), list[int](), list[tuple[float, Free]]()
        if self.space.alike or name is None:
            return
        for base in self.space.free_choices(context):
            m, size = base.micro_batches, base.micro_batch_size * base.replicas
            if any(m % n == 0 for n in hopeless):
                continue
            p = self._probe(context, size, fastest=self.space.recompute_modes()[0] == "none")
            if family_bound(p, self.space.most_value, context.cp, m) >= cutoff or self._worthless(p, context.cp, m):
                hopeless.append(m)
                continue
            if not self._dominated(Family(context=context, micro_batch_size=size)):
                choice = replace(base, schedule=name)
                found.append((self._free_bound(choice, cutoff), Free(choice=choice)))
        self.factory.add(kind for bound, node in found if bound < cutoff for kind in hopeful_kinds(self.space, self.factory, node.choice, cutoff))
        yield from found

    def _free_bound(self, choice: Choice, cutoff: float) -> float:
        """Widths w | b cost what width 1 does on b / w: the least over the divisors."""
        least, c = float("inf"), choice.context
        for width in divisors(choice.micro_batch_size):
            if choice.replicas * width * c.cp <= sum(self.space.gpus.values()):
                p = self._probe(c, choice.micro_batch_size // width)
                least = min(least,
                            free_bound(p, choice.zero_stage, choice.replicas * width, c.cp, choice.micro_batches, self.space.model.num_layers,
                                       self.space.most_value, cutoff))
        return least

    def _flat_and_deepest(self, node: AlikeStages) -> list[Choice]:
        """The choice without virtual stages, where it is needed, and the one with the most stages and virtual stages: gradient traffic hides best
        there, so its kinds are bounds for all."""
        name, choice = self.space.flat_name(), replace(node.choice, alike=node.alike)
        found = [replace(choice, schedule=name)] if name is not None and self.space.needs_alike(node.choice, node.alike) else []
        counts = list(self.space.rounds(node.choice, node.alike))
        if counts:
            found.append(replace(choice, schedule="interleaved", stages=max(p for p, _ in counts), virtual_stages=max(v for _, v in counts)))
        return found

    def _schedules(self, node: AlikeStages, cutoff: float) -> Iterator[tuple[float, Node]]:
        choice, counts = replace(node.choice, alike=node.alike), list(self.space.rounds(node.choice, node.alike))
        for each in self._flat_and_deepest(node):
            kinds = self.space.kinds(each)
            if not kinds:
                return
            if each.virtual_stages == 1:
                table = self._tables(each, kinds)
                if table is not None:
                    bound = flat_bound(table, cutoff, self.space.constraints.max_pp)
                    yield from ((bound, replace(each, stages=p)) for p in even_counts(self.space, each, stage_count_bound(table)))
                continue
            tables = self._tables(replace(each, stages=None, virtual_stages=2), kinds)
            if tables is None:
                return
            for (stages, v), bound in zip(counts, round_bounds(tables, counts, cutoff), strict=True):
                yield bound, replace(choice, schedule="interleaved", stages=stages, virtual_stages=v)
