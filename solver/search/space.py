"""The space that the search covers, and what falls out of it: outer choices and the kinds of stage that each allows.

An outer choice fixes what is global to a plan (schedule, replicas, micro-batch, context and expert degrees, ZeRO stage). A kind is a way to run one
stage under it: node groups, tensor degree, width, recompute. Identical machines are counted here, never enumerated.
"""
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import lcm

import numpy as np
from numpy.typing import NDArray

from solver.axes.tensor import fits_nodes, model_violations
from solver.cost.setting import setting
from solver.cost.uncovered import covered
from solver.cost.unit import UnitSpec, hiding_rounds
from solver.domain.cluster import NodeGroup
from solver.domain.degrees import Framework, Recompute, ScheduleName
from solver.domain.options import Constraints
from solver.domain.packing import tensor_groups_available
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload
from solver.search.budget import Budget, most_value, price_budget, rates_by_group, usable
from solver.search.result import Rejected

MAX_STRADDLED_GROUPS = 4                                   # beyond so many node groups, straddling stages take pairs or all of them
MAX_VIRTUAL_STAGES = 32
CHOICES_KEPT = 1_000                                       # whose kinds are remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """How a sequence and the experts are split, the same in every stage. `sequence_parallel` applies where tp > 1."""

    cp: int
    ulysses: int                                           # Ulysses degree inside cp, the rest is ring
    ep: int
    etp: int
    sequence_parallel: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Degrees that every stage shares: launchers with virtual stages, and uniform plans, need them equal."""

    tp: int
    width: int
    recompute: Recompute | None                            # None: each stage its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An outer choice. `stages` is fixed for interleaved schedules only, where in-flight memory depends on it.

    With `any_replicas` a common divisor of the widths of all stages is so many more replicas on smaller micro-batches.
    """

    schedule: ScheduleName
    replicas: int
    micro_batch_size: int
    micro_batches: int
    context: Context
    zero_stage: int
    virtual_stages: int = 1
    alike: Alike | None = None
    stages: int | None = None
    framework: Framework | None = None
    any_replicas: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way to run a stage. `gpus` counts those of all replicas together."""

    spec: UnitSpec
    gpus: int


@dataclass(slots=True)
class Rejections:
    """Counts, per rule, what never became a candidate, with one example each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, code: str, example: str, count: int = 1) -> None:
        self.counts[code] += count
        self.examples.setdefault(code, example)

    def result(self) -> tuple[Rejected, ...]:
        return tuple(Rejected(code=c, count=n, example=self.examples[c]) for c, n in sorted(self.counts.items()))


def divisors(n: int) -> tuple[int, ...]:
    """All divisors of n, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))


class Space:
    """Everything legal under the problem and the constraints, generated once; the rest is counted in `rejections`.

    `framework`: the stack whose constants price all plans, that of the launcher where none is given.
    """

    def __init__(self, problem: Problem, constraints: Constraints, budgets: Sequence[Budget] = (), framework: Framework | None = None) -> None:
        workload = problem.workload
        if not isinstance(workload, TrainingWorkload):
            raise TypeError("only training is planned")
        self.rules, self.tier = constraints.rules, constraints.allowed_tier
        self.framework = framework or self.rules.framework
        self.problem, self.workload = problem, workload
        self.constraints = constraints if self.rules.pipelines else replace(constraints, max_pp=1)
        self.model = problem.model
        wanted = constraints.node_groups
        self.budgets = (*price_budget(problem, constraints), *budgets)
        within = usable(problem, self.budgets)
        self.groups = tuple(g for g in problem.cluster.node_groups if (wanted is None or g.name in wanted) and within[g.name] > 0)
        self.gpus = {g.name: within[g.name] for g in self.groups}
        self._rates, self._limits = rates_by_group(self.budgets, tuple(self.gpus))
        self.group_index = {g.name: i for i, g in enumerate(self.groups)}
        self.rejections = Rejections()
        self._kinds: dict[Choice, list[Kind]] = {}
        self._contexts: list[Context] | None = None
        self.tensor_degrees = self._tensor_degrees()

    def most_value(self, values: NDArray[np.float64]) -> float:
        """Upper bound on Σ values [groups] x GPUs that any plan uses."""
        return most_value(values, np.array([float(n) for n in self.gpus.values()]), self._rates, self._limits)

    def tensor_groups(self, group: NodeGroup, tp: int) -> int:
        """Groups of tp GPUs that a node group holds, within the budgets."""
        return min(tensor_groups_available(group, tp), self.gpus[group.name] // tp)

    # ---- outer choices, from the coarse to the fine

    def contexts(self) -> list[Context]:
        """Every split of sequence and experts that some tensor degree allows."""
        if self._contexts is None:
            self._contexts = [Context(cp=cp, ulysses=ulysses, ep=ep, etp=etp, sequence_parallel=sp) for cp, ulysses in self._context_degrees()
                              for ep, etp in self._expert_degrees() for sp in self._sequence_modes(cp)]
        return self._contexts

    def _sequence_modes(self, cp: int) -> tuple[bool, ...]:
        """On is never slower nor larger than off; off is searched only where the sequence length forbids on for some tensor degree."""
        profiles = self.problem.profiles                   # measured products may be slower on fewer rows, as latent down-projections have them
        unsure = self.model.mla is not None and profiles is not None and bool(profiles.gemms)
        return (True,) if not unsure and all(self._divides_sequence(tp, cp) for tp in self.tensor_degrees) else (True, False)

    def _divides_sequence(self, tp: int, cp: int) -> bool:
        return tp == 1 or self.workload.seq_len % (cp * (lcm(2, tp) if cp > 1 else tp)) == 0

    def degrees(self, context: Context) -> tuple[int, ...]:
        """Tensor degrees that go with a context."""
        heads = self.model.num_attention_heads
        return tuple(tp for tp in self.tensor_degrees if heads % (tp * context.ulysses) == 0 and tp % context.etp == 0
                     and (not context.sequence_parallel or self._divides_sequence(tp, context.cp)))

    def micro_batch_sizes(self) -> list[int]:
        return self._allowed(divisors(self.workload.global_batch_size), self.constraints.micro_batch_size, "micro_batch_size")

    def replica_counts(self, cp: int, micro_batch_size: int) -> list[int]:
        """Numbers of equal pipelines that divide the batch and have a GPU each."""
        total, kept = sum(self.gpus.values()), []
        for replicas in self._allowed(divisors(self.workload.global_batch_size // micro_batch_size), self.constraints.dp, "dp"):
            if replicas * cp > total:
                self.rejections.add("cluster.too_small", f"dp {replicas} x cp {cp} on {total} GPUs")
            else:
                kept.append(replicas)
        return kept

    def base(self, context: Context, micro_batch_size: int, replicas: int, zero_stage: int) -> Choice:
        """A choice before its schedule."""
        return Choice(schedule="1f1b", replicas=replicas, micro_batch_size=micro_batch_size, context=context, zero_stage=zero_stage,
                      micro_batches=self.workload.global_batch_size // (micro_batch_size * replicas), framework=self.framework)

    @property
    def splits_freely(self) -> bool:
        """Whether replicas and micro-batches are free: D replicas of width w are D w replicas on micro-batches of b / w, and the other way round."""
        return self.constraints.dp is None and self.constraints.micro_batch_size is None

    def free_choices(self, context: Context) -> Iterator[Choice]:
        """Outer choices for unlike stages, before their schedule, the fewest micro-batches first.

        Where replicas and micro-batches are free, one replica stands for any number: its widths may have a common divisor, which is the number.
        """
        batch = self.workload.global_batch_size
        for zero in (z for z in self.zero_stages() if z < 2):
            if self.splits_freely:
                yield from (replace(self.base(context, batch // m, 1, zero), any_replicas=True) for m in divisors(batch))
            else:
                yield from sorted((self.base(context, b, replicas, zero) for b in self.micro_batch_sizes()
                                   for replicas in self.replica_counts(context.cp, b)), key=lambda c: c.micro_batches)

    @property
    def alike(self) -> bool:
        """Whether all stages must share their degrees."""
        return self.tier != "uneven_degrees"

    def rounds(self, base: Choice, alike: Alike) -> Iterator[tuple[int, int]]:
        """(stages, virtual stages) of interleaved schedules that the batch and the layers allow."""
        wanted = self.constraints.schedules
        if (wanted is not None and "interleaved" not in wanted) or self.model.encoder_layers or not self.rules.virtual_stages:
            return
        layers, m = self.model.num_layers, base.micro_batches
        gpus = alike.tp * base.context.cp * alike.width * base.replicas
        most = min(layers // 2, m, self.constraints.max_pp or layers, sum(self.gpus.values()) // gpus)
        allowed = [v for v in divisors(layers) if 2 <= v <= MAX_VIRTUAL_STAGES]
        if self.constraints.virtual_stages is not None:
            allowed = [v for v in allowed if v in self.constraints.virtual_stages]
        for stages in range(2, most + 1):
            if m % stages:
                self.rejections.add("pipeline.interleaved_micro_batches", f"interleaved: {m} micro-batches over pp {stages}")
            else:
                yield from ((stages, v) for v in allowed if stages * v <= layers
                            and (self.tier != "even" or layers % (stages * v) == 0))

    def alikes(self, base: Choice, tp: int) -> list[Alike]:
        """What all stages may share beside the tensor degree.

        Width 1 suffices where replicas and micro-batches are free: D replicas of width w are D w replicas on micro-batches of b / w.
        """
        most = sum(self.gpus.values()) // (tp * base.context.cp * base.replicas)
        modes: tuple[Recompute | None, ...] = self.recompute_modes() if self.alike else (None,)
        widths = (1,) if self.splits_freely else divisors(base.micro_batch_size)
        return [Alike(tp=tp, width=width, recompute=mode) for width in widths if width <= most for mode in modes]

    def flat_name(self) -> ScheduleName | None:
        """The schedule without virtual stages to search: 1F1B is never slower nor larger than GPipe where both are allowed."""
        wanted = self.constraints.schedules
        if self.constraints.virtual_stages is not None and 1 not in self.constraints.virtual_stages:
            return None
        return "1f1b" if wanted is None or "1f1b" in wanted else "gpipe" if "gpipe" in wanted else None

    def needs_alike(self, base: Choice, alike: Alike) -> bool:
        """Whether plans of alike stages are not already among the free ones: straddling, and ZeRO stages that unlike stages cannot have."""
        return self.alike or base.zero_stage >= 2 or self._may_straddle(base, alike)

    def _may_straddle(self, base: Choice, alike: Alike) -> bool:
        return self._straddles(alike.tp, base.context.cp * alike.width * base.replicas)

    def recompute_modes(self) -> tuple[Recompute, ...]:
        """Modes that can differ: under flash kernels `selective` is `none` by another name."""
        modes: tuple[Recompute, ...] = ("none", "selective", "partial", "full")
        if self.workload.attention_kernel != "unfused":
            modes = ("none", "partial", "full")
        wanted = self.constraints.recompute
        if wanted is None:
            return modes
        kept = tuple(m for m in modes if m in wanted)
        return kept + (("selective",) if "selective" in wanted and "none" not in wanted and "selective" not in kept else ())

    def _allowed(self, values: Iterable[int], wanted: tuple[int, ...] | None, name: str) -> list[int]:
        kept = []
        for value in values:
            if wanted is None or value in wanted:
                kept.append(value)
            else:
                self.rejections.add(f"constraints.{name}", f"{name} {value}")
        return kept

    def zero_stages(self) -> tuple[int, ...]:
        """ZeRO-1 is never slower nor larger than ZeRO-0, so 0 is searched only where 1 is not allowed."""
        wanted = self.constraints.zero_stage
        allowed = [z for z in self.rules.zero_stages if wanted is None or z in wanted]
        return tuple(z for z in allowed if not (z == 0 and 1 in allowed))

    def _context_degrees(self) -> list[tuple[int, int]]:
        found = []
        heads, seq = self.model.num_attention_heads, self.workload.seq_len
        for cp in self._allowed(divisors(_power_part(seq)), self.constraints.cp, "cp"):
            if cp > sum(self.gpus.values()) or (cp > 1 and seq % (2 * cp)):
                self.rejections.add("context.sequence_indivisible", f"cp {cp} of {seq} tokens")
                continue
            if self.rules.cp is not None and cp not in self.rules.cp:
                self.rejections.add("launcher.cp", f"cp {cp} under {self.rules.title}")
                continue
            found += [(cp, u) for u in divisors(cp) if heads % u == 0 and (self.rules.ulysses is None or u in self.rules.ulysses)]
        return found

    def _expert_degrees(self) -> list[tuple[int, int]]:
        moe = self.model.moe
        if moe is None:
            return [(1, 1)]
        legal = [ep for ep in divisors(moe.num_experts) if self.rules.ep is None or ep in self.rules.ep]
        degrees = self._allowed(legal, self.constraints.ep, "ep")
        most, width = sum(self.gpus.values()), moe.expert_ffn_hidden_size
        inside = sorted({d for tp in (1, *self.tensor_degrees) for d in divisors(tp) if width % d == 0})
        return [(ep, etp) for ep in degrees for etp in inside if ep * etp <= most]

    def _tensor_degrees(self) -> tuple[int, ...]:
        """Divisors of the heads that no rule of the tensor axis forbids and that some node group's nodes hold."""
        found = []
        for tp in divisors(self.model.num_attention_heads):
            reasons = model_violations(self.model, tp, None)
            if reasons:
                self.rejections.add(reasons[0].code, f"tp {tp}: {reasons[0].message}")
            elif not any(fits_nodes(g, tp) and self.tensor_groups(g, tp) for g in self.groups):
                self.rejections.add("tensor.node", f"tp {tp} neither divides any node nor is a multiple that the group has")
            elif self.rules.kv_heads_divide and self.model.kv_heads % tp:
                self.rejections.add("launcher.kv_heads", f"tp {tp} of {self.model.num_kv_heads} KV heads under {self.rules.title}")
            elif self.constraints.tp is not None and tp not in self.constraints.tp:
                self.rejections.add("constraints.tp", f"tp {tp}")
            else:
                found.append(tp)
        return tuple(found)

    # ---- kinds of one choice

    def _spec(self, context: Context, groups: tuple[str, ...], tp: int, width: int, replicas: int, micro_batch_size: int, mode: Recompute,
              zero_stage: int, rounds: float = 1.0) -> UnitSpec:
        return UnitSpec(groups=groups, tp=tp, cp=context.cp, ulysses=context.ulysses, dp=width, replicas=replicas, ep=context.ep, etp=context.etp,
                        micro_batch_size=micro_batch_size, micro_batches=self.workload.global_batch_size // (micro_batch_size * replicas),
                        recompute=mode, zero_stage=zero_stage, sequence_parallel=context.sequence_parallel, vocabulary_parallel_loss=True,
                        framework=self.framework, hiding_rounds=rounds)

    def probes(self, context: Context, micro_batch_size: int, modes: tuple[Recompute, ...]) -> list[Kind]:
        """One kind per node group, tensor degree and recompute mode at one replica, whether or not it fits: what bounds the whole family from below.

        Widths need no probes of their own (a stage of width w costs what width 1 does on a micro-batch of b / w), nor do straddling stages (no faster
        than the group among theirs that is cheapest). Expert traffic hides as it would with virtual stages.
        """
        return [Kind(gpus=tp * context.cp, spec=self._spec(context, (g.name,), tp, 1, 1, micro_batch_size, mode, 1, rounds=2.0))
                for g in self.groups for tp in self.degrees(context) if fits_nodes(g, tp) for mode in modes]

    def kinds(self, choice: Choice) -> list[Kind]:
        """Every kind of stage that the choice allows, single node groups first."""
        found = self._kinds.get(choice)
        if found is None:
            if len(self._kinds) >= CHOICES_KEPT:
                self._kinds.clear()
            found = self._kinds[choice] = self._every_kind(choice)
        return found

    def _every_kind(self, choice: Choice) -> list[Kind]:
        context, alike, found = choice.context, choice.alike, list[Kind]()
        rounds = hiding_rounds(choice.stages or 1, choice.virtual_stages)
        for tp in self.degrees(context):
            if alike and tp != alike.tp:
                continue
            for width in (alike.width,) if alike else divisors(choice.micro_batch_size):
                gpus = tp * context.cp * width * choice.replicas
                if gpus % (context.ep * context.etp):
                    self.rejections.add("expert.ranks", f"ep {context.ep} x etp {context.etp} on {gpus} ranks")
                    continue
                for groups in self._group_sets(tp, context.cp * width * choice.replicas, alike is not None):
                    if not self._covered(groups, tp, context.cp, width, choice.micro_batch_size):
                        continue
                    for mode in (alike.recompute,) if alike and alike.recompute else self.recompute_modes():
                        spec = self._spec(context, groups, tp, width, choice.replicas, choice.micro_batch_size, mode, choice.zero_stage, rounds)
                        found.append(Kind(gpus=gpus, spec=spec))
        return found

    def _covered(self, groups: tuple[str, ...], tp: int, cp: int, width: int, micro_batch_size: int) -> bool:
        """Whether the problem's layer profiles cover a stage; the rest is not proposed, as an estimate would refuse it."""
        sequences = micro_batch_size / (width * cp)
        if covered(setting(self.problem), groups, tp, sequences):
            return True
        self.rejections.add("profile.missing", f"tp {tp} on {'+'.join(groups)} with {sequences:g} sequences per data rank")
        return False

    def _group_sets(self, tp: int, blocks: int, alike: bool) -> list[tuple[str, ...]]:
        """Node groups that can hold a stage of `blocks` tensor-parallel groups, alone or, where all stages are alike, by straddling.

        Where every node group holds a whole number of such stages, straddling gains nothing: stages of one size spread over bins that are multiples
        of it are a transport problem with integral optimum, so each can lie in one group, where it is no slower. Budgets to which the groups count
        unequally are another matter: a straddling stage counts evenly on its groups.
        """
        fit = {g.name: self.tensor_groups(g, tp) for g in self.groups if fits_nodes(g, tp)}
        singles: list[tuple[str, ...]] = [(name,) for name, n in fit.items() if n >= blocks]
        if not alike or not self._straddles(tp, blocks):
            return singles
        names = sorted(n for n, have in fit.items() if have > 0)
        sizes = range(2, len(names) + 1) if len(names) <= MAX_STRADDLED_GROUPS else (2, len(names))
        return singles + [s for size in sizes for s in combinations(names, size) if sum(fit[n] for n in s) >= blocks]

    def _straddles(self, tp: int, blocks: int) -> bool:
        if not self.rules.straddling:
            return False
        fit = {g.name: tensor_groups_available(g, tp) for g in self.groups if fits_nodes(g, tp)}
        unequal = any(len(set(rates)) > 1 for rates in self._rates)
        return sum(n > 0 for n in fit.values()) > 1 and (unequal or any(n % blocks for n in fit.values()))


def _power_part(seq_len: int) -> int:
    """Half of the sequence length, at most 4096 ways: cp must divide seq / 2."""
    half = max(1, seq_len // 2)
    return half if half <= 4096 else max(d for d in divisors(half) if d <= 4096)
