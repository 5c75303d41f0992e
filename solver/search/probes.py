"""Bounds on whole families at once.

A family is every replica count, tensor degree and ZeRO stage of a context and micro-batch size; one unit per (group, tp, recompute) bounds it.

What a probe uses does not depend on replicas or ZeRO: time per layer (higher ZeRO stages are no faster), weights and gradients as far as the ZeRO
stage leaves them whole, activations, and the fewest micro-batches in flight that any schedule holds, min(m, k) at position k from the end. For a step
time T a stage holds at most cap(k, T) = max over recompute modes of min(layers in memory, floor(T / (m τ))) layers; where the caps of all stages that
the GPUs allow sum to less than L, no plan is as fast as T. The least T that passes, found by bisection, is the bound.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from solver.cost.bulk import ACTIVATION, BACKWARD, BUFFERS, CAPACITY, FORWARD, GRADIENTS, WEIGHTS, LayerTable, layers_of
from solver.cost.setting import setting
from solver.cost.uncovered import bounded
from solver.domain.degrees import Recompute
from solver.search.bounds import SLACK, UNBOUNDED_S, least_time, least_times
from solver.search.space import Context, Kind, Space, divisors
from solver.search.tables import TableFactory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Booleans = NDArray[np.bool_]
FAMILIES_AT_ONCE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Per (group, tp, recompute): seconds and bytes of one layer of the cheapest class. `fit` [groups, degrees] tensor-parallel groups there are.

    `tau` and `class_s` bound this micro-batch and, per sequence, all its divisors from below; `forward_s` and `backward_s` are what it costs. These
    differ where layers are measured: a larger micro-batch may then take longer per sequence, or not be covered at all.
    """

    degrees: tuple[int, ...]
    tau: Floats                                            # [G, T, R]; infinite where the degree does not fit the nodes or nothing bounds it
    activation: Floats
    weights: Floats
    gradients: Floats
    room: Floats                                           # capacity less buffers
    fit: NDArray[np.int64]                                 # [G, T]
    class_s: Floats                                        # [C, G, T, R] seconds of one layer of each class, at least
    forward_s: Floats                                      # [C, G, T, R] of one layer of each class
    backward_s: Floats
    class_layers: Floats                                   # [C]

    def layers_within(self, time_s: float, tau: Floats) -> Floats:
        """Layers of `tau` seconds within a time that may be infinite; none where the degree does not fit."""
        return np.where(np.isfinite(tau), time_s / np.where(np.isfinite(tau), tau, 1.0), 0.0)


    def no_better_than(self, other: "Probe") -> bool:
        """Whether every stage of this family costs at least what the same stage of the other does: time forward and backward, bytes, room."""
        if not set(self.degrees) <= set(other.degrees):
            return False
        at, usable = [other.degrees.index(d) for d in self.degrees], np.isfinite(self.tau)
        more = [self.activation - other.activation[:, at], self.weights - other.weights[:, at], self.gradients - other.gradients[:, at],
                other.room[:, at] - self.room]
        times = [(mine[..., usable], theirs[:, :, at][..., usable]) for mine, theirs in ((self.forward_s, other.forward_s),
                                                                                       (self.backward_s, other.backward_s))]
        return bool(all((m[usable] >= 0.0).all() for m in more) and all((mine >= theirs).all() for mine, theirs in times))


def probe_of(space: Space, factory: TableFactory, context: Context, micro_batch_size: int, *, fastest: bool = False) -> Probe:
    """The probe of a family, made once for all searches over a problem. `fastest`: the recompute mode that computes least, alone."""
    modes = space.recompute_modes()[:1] if fastest else space.recompute_modes()
    key = (tuple(space.gpus), space.tensor_degrees, modes)
    found: Probe | None = factory.probes.get((*key, context, micro_batch_size))
    if found is None:
        families = [(context, micro_batch_size), *(other for other in _beside(space, context, micro_batch_size, fastest)
                                                   if (*key, *other) not in factory.probes)][:FAMILIES_AT_ONCE]
        made = probes_of(space, factory, families, modes)
        factory.probes.update(((*key, *family), each) for family, each in zip(families, made, strict=True))
        found = made[0]
    return replace(found, fit=fits(space, found.degrees)) if space.budgets else found


def _beside(space: Space, context: Context, micro_batch_size: int, fastest: bool) -> list[tuple[Context, int]]:
    """Families that are priced along with one, at little cost: searches begin with the largest micro-batch of every context, and go on with all sizes
    of some."""
    wanted = space.constraints.micro_batch_size
    sizes = [b for b in divisors(space.workload.global_batch_size) if wanted is None or b in wanted]
    if fastest and micro_batch_size == max(sizes, default=0):
        contexts = space.contexts()
        return [(c, micro_batch_size) for c in contexts[contexts.index(context) + 1:]] if context in contexts else []
    return [(context, b) for b in sizes if b != micro_batch_size]


def probe(space: Space, factory: TableFactory, context: Context, micro_batch_size: int, modes: tuple[Recompute, ...]) -> Probe:
    """One unit per node group, tensor degree and recompute mode of `modes`."""
    return probes_of(space, factory, [(context, micro_batch_size)], modes)[0]


def probes_of(space: Space, factory: TableFactory, families: Sequence[tuple[Context, int]], modes: tuple[Recompute, ...]) -> list[Probe]:
    """The probe of each context and micro-batch size, priced together."""
    of, problem = setting(factory.problem), factory.problem
    kinds = [[k for k in space.probes(context, size, modes) if bounded(of, k.spec)] for context, size in families]
    specs = [k.spec for some in kinds for k in some]
    units = layers_of(problem, specs)
    least = units if problem.profiles is None else layers_of(problem, specs, least=True)
    ends = np.cumsum([0, *(len(some) for some in kinds)]).tolist()
    return [_probe(space, factory, context, modes, some, units.at(slice(first, last)), least.at(slice(first, last)))
            for (context, _), some, first, last in zip(families, kinds, ends[:-1], ends[1:], strict=True)]


def _probe(space: Space, factory: TableFactory, context: Context, modes: tuple[Recompute, ...], kinds: list[Kind], units: LayerTable,
           least: LayerTable) -> Probe:
    """A probe of priced units, of which `least` bounds the times."""
    degrees = space.degrees(context)
    group, degree, mode = np.array([(space.group_index[k.spec.groups[0]], degrees.index(k.spec.tp), modes.index(k.spec.recompute)) for k in kinds],
                                   dtype=np.int64).reshape(-1, 3).T
    shape = (len(space.groups), len(degrees), len(modes))

    def placed(values: Floats, empty: float) -> Floats:
        """Values of every unit, with the last axis by unit, by group, degree and mode."""
        found = np.full((*values.shape[:-1], *shape), empty)
        found[..., group, degree, mode] = values
        return found

    smallest = units.parts.min(axis=1, initial=np.inf)                                                               # [units, 6] over the classes
    class_s = placed((least.parts[..., FORWARD] + least.parts[..., BACKWARD]).T, np.inf)
    room = (units.room[:, CAPACITY] * (1 - factory.margin) - units.room[:, BUFFERS]) * (1 + SLACK)
    return Probe(degrees=degrees, tau=class_s.min(axis=0), class_s=class_s, activation=placed(smallest[:, ACTIVATION], 0.0),
                 weights=placed(smallest[:, WEIGHTS], 0.0), gradients=placed(smallest[:, GRADIENTS], 0.0), room=placed(room, 0.0),
                 fit=fits(space, degrees), forward_s=placed(units.parts[..., FORWARD].T, np.inf),
                 backward_s=placed(units.parts[..., BACKWARD].T, np.inf),
                 class_layers=np.array(list(factory.class_counts.values()), dtype=float))


def fits(space: Space, degrees: tuple[int, ...]) -> NDArray[np.int64]:
    """[G, T] tensor-parallel groups of each degree that each node group holds, within the budgets."""
    return np.array([[space.tensor_groups(g, t) for t in degrees] for g in space.groups], dtype=np.int64).reshape(len(space.groups), len(degrees))


def family_bound(p: Probe, most_value: Callable[[Floats], float], cp: int, rounds: int) -> float:
    """Least step time over any mix of GPUs and degrees, memory left out; `rounds` = m D.

    For prices λ >= 0 on the GPUs of each group, T Σ λ N >= rounds Σ_layers min_g λ_g (GPU-seconds of the layer in g). The prices tried make all
    groups equally dear for the whole model and for each class of layers; with one class the first is exact. `most_value` bounds Σ λ N within the
    budgets.
    """
    dear = p.class_s * (np.array(p.degrees)[:, None] * cp)                                                           # [C, G, T, R]
    seconds = dear.min(axis=(2, 3), initial=np.inf)                                                                  # [C, G]
    usable = np.isfinite(seconds).all(axis=0)
    if not usable.any():
        return float("inf")
    best = 0.0
    for whole in (p.class_layers @ np.where(usable, seconds, 1.0), *seconds):
        price = np.where(usable, 1.0 / whole, 0.0)
        least = (price * np.where(usable, seconds, 0.0))[:, usable].min(axis=1)
        best = max(best, float(p.class_layers @ least) / most_value(price))
    return rounds * best * (1 - SLACK)


def least_work(p: Probe, rates: Floats, cp: int, rounds: int, degree: int | None = None, mode: int | None = None) -> float:
    """What all busy GPUs take at least in a step, by rates [G]: rounds Σ_layers min (rate x GPU-seconds of the layer). Bubbles and waiting add to it.

    A stage is busy for m x_k of the step time T, so Σ rate gpus T >= m Σ_stages rate gpus x_k. One tensor degree and recompute mode, or the best.
    """
    at = slice(None) if degree is None else slice(p.degrees.index(degree), p.degrees.index(degree) + 1)
    dear = p.class_s[:, :, at] * (np.array(p.degrees)[at, None] * cp) * rates[:, None, None]                          # [C, G, T, R]
    dear = dear if mode is None else dear[..., mode:mode + 1]
    return rounds * float(p.class_layers @ dear.min(axis=(1, 2, 3), initial=np.inf)) * (1 - SLACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeFamilies:
    """E families of plans whose stages all have one tensor degree, any schedule. Indices are into the probe's degrees and recompute modes."""

    degree: Ints                                           # [E]
    mode: Ints                                             # [E] what all stages recompute; -1: each its own
    zero_stage: Ints                                       # [E]
    replicas: Ints                                         # [E] widths included
    micro_batches: Ints                                    # [E]


def alike_bounds(p: Probe, of: AlikeFamilies, cp: int, layers: int, cutoff: float, max_stages: int | None = None) -> Floats:
    """[E] least step times; infinite where none is below `cutoff`.

    Stages that straddle node groups count as if of the best group at each position.
    """
    found = np.full(len(of.degree), np.inf)
    fit, size = p.fit[:, of.degree].T, cp * of.replicas                                                              # [E, G], [E]
    stages = fit // size[:, None]
    spare = fit.sum(axis=1) // size - stages.sum(axis=1)
    most = np.minimum(stages.sum(axis=1) + spare, min(layers, max_stages or layers))
    modes = (of.mode[:, None] < 0) | (of.mode[:, None] == np.arange(p.tau.shape[2]))                                 # [E, R]
    least = np.where(modes[:, None, :], p.tau[:, of.degree].transpose(1, 0, 2), np.inf).min(axis=(1, 2))             # [E]
    floor = of.micro_batches * layers * least / np.maximum(most, 1)
    for deepest in np.unique(most):                        # families of as many stages together, so that arrays are no deeper than need be
        at = np.nonzero((most == deepest) & (deepest > 0) & (floor < cutoff))[0]
        if len(at):
            holds = _holds(p, of, at, (stages[at], spare[at]), int(deepest), modes[at], layers)
            found[at] = least_times(holds, floor[at], cutoff)
    return found


def _holds(p: Probe, of: AlikeFamilies, at: Ints, room_for: tuple[Ints, Ints], most: int, modes: Booleans,
           layers: int) -> Callable[[Ints, Floats], Booleans]:
    """For rows of `at` and times: whether the best `most` stages hold all layers.

    room_for: stages inside each group [E, G], and across groups [E]; modes [E, R].
    """
    degree, m, zero = of.degree[at], of.micro_batches[at], of.zero_stage[at]
    tau, activation, room, weights, gradients = (a[:, degree].transpose(1, 0, 2) for a in (p.tau, p.activation, p.room, p.weights, p.gradients))
    states = np.where(zero[:, None, None] < 3, weights, 0.0) + np.where(zero[:, None, None] < 2, gradients, 0.0)       # [E, G, R]
    flight = np.minimum(np.arange(1, most + 1), m[:, None])[:, None, :, None]
    held = states[:, :, None, :] + activation[:, :, None, :] * flight                                                # [E, G, k, R]
    in_memory = np.floor(np.maximum(room, 0.0)[:, :, None, :] / np.maximum(held, 1e-300) + SLACK)
    in_memory = np.where(modes[:, None, None, :] & (p.fit[:, degree].T > 0)[:, :, None, None], in_memory, 0.0)
    present, straddling = (np.arange(most) < n[..., None] for n in room_for)                                         # [E, G, k], [E, k]
    rate = np.where(np.isfinite(tau), 1.0 / np.where(np.isfinite(tau), m[:, None, None] * tau, 1.0), 0.0)

    def holds(rows: Ints, times_s: Floats) -> Booleans:
        in_time = np.floor(np.minimum(times_s, UNBOUNDED_S)[:, None, None] * rate[rows] + SLACK)[:, :, None, :]
        cap = np.minimum(in_memory[rows], in_time).max(axis=3)                                                       # [rows, G, k]
        inside, across = np.where(present[rows], cap, 0.0), np.where(straddling[rows], cap.max(axis=1), 0.0)
        caps = np.concatenate([inside.reshape(len(rows), inside.shape[1] * most), across], axis=1)
        return np.asarray(np.partition(caps, -most, axis=1)[:, -most:].sum(axis=1) >= layers)

    return holds


def free_bound(p: Probe, zero_stage: int, replicas: int, cp: int, micro_batches: int, layers: int, most_value: Callable[[Floats], float],
               cutoff: float) -> float:
    """The same for stages that may differ: every GPU at the best layers per GPU that its group allows, one micro-batch in flight."""
    m = micro_batches
    static = (p.weights if zero_stage < 3 else 0.0) + (p.gradients if zero_stage < 2 else 0.0)
    size = (np.array(p.degrees) * cp * replicas)[None, :, None]
    in_memory = np.maximum(p.room, 0.0) / np.maximum(static + p.activation, 1e-300)

    def holds(time_s: float) -> bool:
        cap = np.floor(np.minimum(in_memory, p.layers_within(time_s, m * p.tau)) + SLACK)
        return most_value((cap / size).max(axis=(1, 2))) >= layers * (1 - SLACK)

    fill = float(p.class_layers @ p.class_s.min(axis=(1, 2, 3)))
    return max(least_time(holds, m * float(p.tau.min()), cutoff), fill)
