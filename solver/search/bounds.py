"""Lower bounds on the step time of everything that a choice's tables allow, and on what is left to do from a partial plan.

Notation: stages are counted k = 1, 2, ... from the last; x_k is a stage's time per micro-batch, F_k its forward part, D_k = x_1 + ... + x_{k-1}, S =
Σ x, m micro-batches. The recurrence of 1F1B is a longest path; each of these is the length of one path through it, hence a lower bound (transfers are
part of x):

    S + (m - 1) x_k - D_k                     fill to stage k, m micro-batches there, drain
    S + (m - 1) x_k - (min(m, k) - 1) F_k     one micro-batch through the whole pipeline first, then the rest of stage k's work
    S + (m - k) x_k + D_k    (m >= k + 1)     the same, and once more to the last stage and back at the end

so T >= S + z_k for z_k the largest of the three terms behind S. The last is exact for stages that are nearly balanced.
GPipe: T = S + (m - 1) (max F + max B) >= S + (m - 1) max x.
"""
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solver.search.tables import Floats, Ints, Tables

BISECTIONS = 14                                            # to within a few parts in 10^5; the bound is the lower end
UNBOUNDED_S = 1e12                                         # in place of a step time to beat, where there is none
SLACK = 1e-9                                               # relative; float sums in another order must not cut an optimum


def stage_term(schedule: str, m: int, k: int, x: Floats, forward: Floats, behind: Floats) -> Floats:
    """z_k: what a stage at position k from the end adds to S, elementwise. x, forward, behind = D_k in seconds."""
    if schedule == "gpipe":
        return (m - 1) * x
    term = np.maximum((m - 1) * x - behind, (m - 1) * x - (min(m, k) - 1) * forward)
    return np.maximum(term, (m - k) * x + behind) if m >= k + 1 else term


def held(schedule: str, m: int, k: int) -> int:
    """Micro-batches whose activations a stage at position k from the end holds at its peak."""
    return m if schedule == "gpipe" else min(m, k)


def layer_floor(t: Tables) -> Floats:
    """[L + 1] least time of the first L - c layers and the embedding, whatever their kinds: the cost to go without resources."""
    per_layer = np.diff(t.time, axis=1).min(axis=0)
    left = per_layer.sum() - np.concatenate(([0.0], np.cumsum(per_layer)))
    floor: Floats = np.maximum(left, 0.0) + t.embedding_time.min()
    return floor


def sync_floor(t: Tables) -> float:
    """No plan's last synchronisation is shorter: a stage of one layer of the cheapest kind."""
    one = np.diff(t.sync, axis=2).min(axis=2)
    return float((t.sync_constant + one).max(axis=1).min())


def forward_share(t: Tables) -> float:
    """φ: the largest share of a layer's time that is forward."""
    return float(np.max(np.diff(t.forward, axis=1) / np.maximum(np.diff(t.time, axis=1), 1e-300)))


def quick_bound(t: Tables) -> float:
    """A lower bound on the step time of the choice, without search.

    Let a plan have T = its step time. Every stage has m x_k <= T - sync, and GPUs are limited: for multipliers λ_g >= 0 with Σ λ_g N_g = m,
    m max x >= Σ_g λ_g N_g max x >= Σ_stages λ gpus_k x_k, so T >= sync + Σ_layers min_u λ_u gpus_u τ_u (a straddling kind takes its cheapest group's
    λ). With the fill, T >= sync + S + (m - 1 - φ (K - 1)) max x where F_k <= φ x_k and K bounds the number of stages; both are maximised over a grid
    of λ. Transfers are left out: they add at least as much to x_k as to F_k. What one stage that is first and last does not pay twice is taken off.
    """
    m, r = t.micro_batches, t.resources
    per_layer, most = np.diff(t.time, axis=1), stage_count_bound(t)                                     # [K, L]
    phi = max(forward_share(t), *(float(np.max(f / np.maximum(x, 1e-300))) for f, x in ((t.head_forward, t.head_time),
                                                                                       (t.embedding_forward, t.embedding_time))))
    steady = m - 1 - phi * (min(m, most) - 1) if t.schedule != "gpipe" else float(m - 1)
    grid = simplex_grid(len(r.group_gpus))                 # [J, G], rows sum to 1
    price = grid / r.group_gpus                            # λ_g for Σ λ_g N_g = 1, or what the budgets leave of that
    if len(r.limits):
        price = price / np.array([r.most_value(row) for row in price])[:, None]
    least = np.where(r.members[None], price[:, None, :], np.inf).min(axis=2)[:, t.set_index] * t.gpus   # [J, K]
    best = 0.0
    scales = [(0.0, float(m))]
    if t.virtual_stages == 1 and steady > 0:
        scales.append((1.0, steady))
    for own, weight in scales:
        coefficient = own + weight * least                 # [J, K]
        value = (coefficient[:, :, None] * per_layer[None]).min(axis=1).sum(axis=1)
        value += (coefficient * t.head_time).min(axis=1) + (coefficient * t.embedding_time).min(axis=1) - (coefficient * t.shared_time).max(axis=1)
        best = max(best, float(value.max()))
    return (best + sync_floor(t)) * (1.0 - SLACK)


def quick_work(t: Tables, rates: Floats) -> float:
    """What the GPUs of any plan of the choice take at least in a step, by rates [sets], without search.

    W T >= Σ_stages rate gpus (m x_k + sync_k) for W = Σ rate gpus, since T >= m x_k + sync_k for every stage: a sum over layers, each at its cheapest
    kind, the ends, and the constant part of at least one stage's synchronisation. One piece of the synchronisation bounds it from below.
    """
    m, fee = t.micro_batches, rates[t.set_index] * t.gpus                                               # [K]
    sync = t.sync[:, 0]
    layers = (fee[:, None] * (m * np.diff(t.time, axis=1) + np.diff(sync, axis=1))).min(axis=0).sum()
    ends = [fee * (m * t.head_time + t.sync_head[:, 0]), fee * (m * t.embedding_time + t.sync_embedding[:, 0]), fee * t.sync_constant[:, 0]]
    shared = (fee * (m * t.shared_time + t.shared_sync[:, 0])).max()
    return float(layers + sum(part.min() for part in ends) - shared) * (1 - SLACK)


def flat_bound(t: Tables, cutoff: float, max_stages: int | None = None) -> float:
    """A lower bound on plans without virtual stages of kinds that use equally many GPUs, with memory and whole layers.

    Infinite where none is below `cutoff`. From T >= S + z_k + sync a stage at position k holds at most

        floor((T - S_min - sync_min) / (((m - 1) - φ (min(m, k) - 1)) τ))

    layers, and no more than its memory: where the best stages that the GPUs allow do not reach L, no plan is as fast as T. φ is the largest share
    of a stage's time that is forward.
    """
    m, layers = t.micro_batches, np.diff(t.time, axis=1)
    tau, most = layers.min(axis=1), min(stage_count_bound(t), max_stages or t.layers)
    if most < 1:
        return float("inf")
    position = np.arange(1, most + 1)
    flight = np.full(most, m) if t.schedule == "gpipe" else np.minimum(m, position)
    phi = 0.0 if t.schedule == "gpipe" else forward_share(t)
    weight = (m - 1) - phi * (np.minimum(m, position) - 1)
    static, activation = np.diff(t.static, axis=1).min(axis=1), np.diff(t.activation, axis=1).min(axis=1)
    memory = np.floor((t.capacity - t.buffers)[:, None] / np.maximum(static[:, None] + activation[:, None] * flight, 1e-300) * (1 + SLACK))
    fixed = float(layers.min(axis=0).sum() + t.embedding_time.min() + max(0.0, t.head_time.min() - t.shared_time.max())) + sync_floor(t)

    def holds(time_s: float) -> bool:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            load = np.where(weight > 0, (time_s - fixed) / np.maximum(weight * tau[:, None], 1e-300), np.inf)
        return time_s >= fixed * (1 - SLACK) and reach(t, np.floor(np.minimum(memory, load) * (1 + SLACK) + SLACK), most) >= t.layers

    return least_time(holds, fixed, cutoff)


def reach(t: Tables, caps: Floats, stages: int) -> float:
    """Most layers in `stages` stages with caps [K, positions]: per set of node groups its best positions, as many as it has GPUs for; optimistic."""
    r, best = t.resources, []
    for index in range(len(r.sets)):
        members = t.set_index == index
        room = int(r.capacity[r.inside[:, index]].min() // t.gpus[members].min())
        best.append(np.sort(np.maximum(caps[members].max(axis=0), 0.0))[::-1][:min(room, stages)])
    return float(np.sort(np.concatenate(best))[::-1][:stages].sum())


def least_time(holds: Callable[[float], bool], floor_s: float, cutoff: float) -> float:
    """Least T with `holds`, which is monotone in T, from below: never more than the truth. Infinite where not even the cut-off holds."""
    low = max(floor_s * (1 - SLACK), 1e-12)
    if low >= cutoff or not holds(cutoff):
        return float("inf")
    if holds(low):
        return low * (1 - SLACK)
    high = low
    while high < cutoff:
        high *= 2
        if holds(high):
            break
        low = high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low * (1 - SLACK)


def least_times(holds: Callable[[Ints, Floats], NDArray[np.bool_]], floor_s: Floats, cutoff: float) -> Floats:
    """`least_time` of many at once. `holds(rows, times)` is monotone in the time of each row."""
    found, low = np.full(len(floor_s), np.inf), np.maximum(floor_s * (1 - SLACK), 1e-12)
    rows = np.nonzero(low < cutoff)[0]
    rows = rows[holds(rows, np.full(len(rows), cutoff))]
    at_once = holds(rows, low[rows])
    found[rows[at_once]] = low[rows[at_once]] * (1 - SLACK)
    rows = rows[~at_once]
    high, open_ = low.copy(), rows
    while len(open_):
        high[open_] = np.minimum(2 * low[open_], cutoff)
        open_ = open_[(high[open_] < cutoff)]
        open_ = open_[~holds(open_, high[open_])]
        low[open_] = high[open_]
    for _ in range(BISECTIONS if len(rows) else 0):
        middle = (low[rows] + high[rows]) / 2
        there = holds(rows, middle)
        high[rows], low[rows] = np.where(there, middle, high[rows]), np.where(there, low[rows], middle)
    found[rows] = low[rows] * (1 - SLACK)
    return found


def stage_count_bound(t: Tables) -> int:
    """No plan has more stages: layers, and GPUs over those of the smallest kind."""
    return int(min(t.layers, t.resources.capacity.max() // t.gpus.min()))


def simplex_grid(groups: int) -> Floats:
    """[J, groups] points with coordinates >= 0 that sum to 1: any of them is a valid multiplier."""
    if groups == 1:
        return np.ones((1, 1))
    steps = {2: 40, 3: 12, 4: 8}.get(groups, 5)
    if groups > 6:
        return np.vstack([np.eye(groups), np.full((1, groups), 1.0 / groups)])
    points = np.array([p for p in np.ndindex(*(steps + 1,) * (groups - 1)) if sum(p) <= steps], dtype=float)
    return np.hstack([points, steps - points.sum(axis=1, keepdims=True)]) / steps


def most_layers(t: Tables, k: int, limit: float) -> Ints:
    """[K] most layers that a middle stage at position k may hold under T <= limit and memory, wherever they lie: an optimistic count."""
    m = t.micro_batches
    per_layer = np.diff(t.time, axis=1).min(axis=1)
    per_static, per_activation = np.diff(t.static, axis=1).min(axis=1), np.diff(t.activation, axis=1).min(axis=1)
    in_memory = (t.capacity - t.buffers) / np.maximum(per_static + per_activation * held(t.schedule, m, k), 1e-300)
    in_time = limit / (m * per_layer)
    most: Ints = np.clip(np.floor(np.minimum(in_memory, in_time) * (1 + SLACK) + SLACK), 0, t.layers).astype(np.int64)
    return most
