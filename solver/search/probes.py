"""Bounds on whole families at once.

A family is every replica count, tensor degree and ZeRO stage of a context and micro-batch size; one unit per (group, tp, recompute) bounds it.

What a probe uses does not depend on replicas or ZeRO: time per layer (higher ZeRO stages are no faster), weights and gradients as far as the ZeRO
stage leaves them whole, activations, and the fewest micro-batches in flight that any schedule holds, min(m, k) at position k from the end. For a step
time T a stage holds at most cap(k, T) = max over recompute modes of min(layers in memory, floor(T / (m τ))) layers; where the caps of all stages that
the GPUs allow sum to less than L, no plan is as fast as T. The least T that passes, found by bisection, is the bound.
"""
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.cost.setting import setting
from solver.cost.uncovered import bounded
from solver.cost.units import layer_costs
from solver.domain.degrees import Recompute
from solver.search.bounds import SLACK, least_time
from solver.search.space import Context, Space
from solver.search.tables import TableFactory

Floats = NDArray[np.float64]


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


def probe(space: Space, factory: TableFactory, context: Context, micro_batch_size: int, modes: tuple[Recompute, ...]) -> Probe:
    """One unit per node group, tensor degree and recompute mode of `modes`."""
    degrees = space.degrees(context)
    shape = (len(space.groups), len(degrees), len(modes))
    counts = factory.class_counts
    class_s, forward_s, backward_s = (np.full((len(counts), *shape), np.inf) for _ in range(3))
    activation, weights, gradients, room = (np.zeros(shape) for _ in range(4))
    of, measured = setting(factory.problem), factory.problem.profiles is not None
    for kind in space.probes(context, micro_batch_size, modes):
        if not bounded(of, kind.spec):
            continue
        at = (space.group_index[kind.spec.groups[0]], degrees.index(kind.spec.tp), modes.index(kind.spec.recompute))
        unit = layer_costs(factory.problem, kind.spec)
        least = layer_costs(factory.problem, kind.spec, least=True) if measured else unit
        parts = list(unit.layers.values())
        class_s[:, *at] = [least.layers[c].forward_s + least.layers[c].backward_s for c in counts]
        forward_s[:, *at] = [unit.layers[c].forward_s for c in counts]
        backward_s[:, *at] = [unit.layers[c].backward_s for c in counts]
        activation[at], weights[at], gradients[at] = (min(getattr(p, n) for p in parts)
                                                      for n in ("activation_bytes", "weights_bytes", "gradients_bytes"))
        room[at] = (unit.capacity_bytes * (1 - factory.margin) - unit.buffers_bytes) * (1 + SLACK)
    return Probe(degrees=degrees, tau=class_s.min(axis=0), class_s=class_s, activation=activation, weights=weights, gradients=gradients, room=room,
                 fit=fits(space, degrees), forward_s=forward_s, backward_s=backward_s, class_layers=np.array(list(counts.values()), dtype=float))


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


def alike_bound(p: Probe, degree: int, mode: int | None, zero_stage: int, replicas: int, cp: int, micro_batches: int, layers: int, cutoff: float,
                sizes: int | None = None) -> float:
    """Least step time of plans whose stages all have this tensor degree, any schedule; infinite where none is below `cutoff`. `sizes` limits the
    number of stages, `mode` (an index into the probe's recompute modes) what all of them recompute."""
    at, m = p.degrees.index(degree), micro_batches
    some = slice(None) if mode is None else slice(mode, mode + 1)
    tau, activation, room = p.tau[:, at, some], p.activation[:, at, some], np.maximum(p.room[:, at, some], 0.0)       # [G, R]
    stages = p.fit[:, at] // (cp * replicas)
    spare = int(p.fit[:, at].sum()) // (cp * replicas) - int(stages.sum())
    most = int(min(stages.sum() + spare, layers, sizes or layers))
    if most == 0 or m * layers * float(tau.min()) / most >= cutoff:
        return float("inf")
    static = (p.weights[:, at, some] if zero_stage < 3 else 0.0) + (p.gradients[:, at, some] if zero_stage < 2 else 0.0)
    flight = np.minimum(np.arange(1, most + 1), m)
    held = np.broadcast_to(static, tau.shape)[:, None, :] + activation[:, None, :] * flight[None, :, None]            # [G, k, R]
    in_memory = np.floor(room[:, None, :] / np.maximum(held, 1e-300) + SLACK)
    present = np.arange(most)[None, :] < np.minimum(stages, most)[:, None]                                           # [G, k]

    there = p.fit[:, at] > 0

    def holds(time_s: float) -> bool:
        cap = np.minimum(in_memory, np.floor(p.layers_within(time_s, m * tau) + SLACK)[:, None, :]).max(axis=2) * there[:, None]     # [G, k]
        straddling = cap.max(axis=0)[:min(spare, most)]    # counted as if of the best group at each position
        caps = np.sort(np.concatenate([(cap * present).ravel(), straddling]))[::-1][:most]
        return bool(caps.sum() >= layers)

    return least_time(holds, m * layers * float(tau.min()) / most, cutoff)


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
