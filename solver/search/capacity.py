"""Whether all GPUs together can hold the model's layers within a step time: memory, bubbles and synchronisation included, without search.

Notation of solver.search.bounds. In a plan of step time T whose stages take S = Σ x together, a stage of kind u at position k from the end holds n
layers only where

    n ((m - 1 - φ_u (min(m, k) - 1)) τ_u + σ_u) <= T - S - (constant synchronisation) - (what the head takes, at k = 1)

with τ_u its least seconds per layer, φ_u the largest share of them that is forward, σ_u its least synchronisation per layer (T >= S + z_k + sync_k,
and of z_k the second term), and where its memory holds them with min(m, k) micro-batches in flight: at most cap(u, k, S) layers.

On average stages are held shorter. With Y = T - S - max sync, (m - k) x_k + D_k <= Y for k < m (the third term), so D_k + x_k is at most
D_k (1 - 1 / (m - k)) + Y / (m - k), which grows in D_k: by induction the first k stages take at most k Y / (m - 1). Hence
Σ_{k < m} ((m - 1) x_k + sync_k - (T - S)) <= 0.

Let S lie in [a, b]. For prices λ >= 0 per GPU of each group, μ >= 0 per second of S and ν >= 0 on that sum, Lagrange's bound on the layers that all
stages can hold is the sum over positions of the best of no stage and of 1 <= n <= cap(u, k, a) layers of a kind at

    n (1 - μ τ_u - ν ((m - 1) τ_u + σ_u)) + ν (T - a - constants) - λ gpus_u

(ν where k < m, a straddling kind at the least λ of its groups) and Σ_g λ_g N_g + μ (b - ends). Where it is below L for every interval of a partition
of all possible S, no plan is as fast as T. Where the term of one position is taken with a given kind in place of the best one, and the bound is below
L for every position and interval, no plan as fast as T has a stage of that kind.
"""
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.search.bounds import SLACK, stage_count_bound
from solver.search.tables import Floats, Ints, Tables

ROUNDS = 12                                                # prices tried per interval
DEPTH = 4                                                  # halvings of the interval of S
SHRINK = 0.6                                               # of the subgradient's step
HOPELESS = 1.25                                            # intervals in which so many times L may fit are not halved further
STEPS = 4                                                  # times tried for the bound
INTERVALS = 8                                              # of S, for what is left to partial plans
SCALES = (0.7, 1.0, 1.4)                                   # of the prices, since what is left is unlike the whole
FINE = 0.004                                               # of the time: the bound is no closer than that

Booleans = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    """U kinds at K positions."""

    tau: Floats                                            # [U]
    weight: Floats                                         # [U, K] seconds of T - S that one layer takes at least
    average: Floats                                        # [U] that one layer takes on average
    counted: Booleans                                      # [K] positions of which that average is told
    edge: Floats                                           # [U, K] of a stage's time: its transfers to the next, both ways
    constant: Floats                                       # [U, K] seconds of T - S that a stage takes whatever it holds
    memory: Floats                                         # [U, K] layers
    gpus: Floats                                           # [U]
    member: Floats                                         # [U, G] 0 inside, infinite outside the kind's groups
    available: Floats                                      # [G]
    least: float                                           # of S
    ends: float                                            # of S: head and embedding
    layers: int

    def caps(self, seconds: float) -> Floats:
        """[U, K] most layers of a stage where T - S is so long."""
        return np.clip(np.floor(np.minimum(self.memory, (seconds - self.constant) / self.weight) * (1 + SLACK) + SLACK), 0, self.layers)


def kinds_within(t: Tables, time_s: float, max_stages: int | None = None) -> Booleans:
    """[K] which kinds plans faster than `time_s` may have a stage of, without virtual stages. None: there is no such plan."""
    return _within(_stages(t, _most(t, max_stages)), time_s)[1]


def capacity_bound(t: Tables, floor_s: float, cutoff: float, max_stages: int | None = None) -> float:
    """A lower bound on the step time of plans without virtual stages, at least `floor_s`; infinite where none of the choice is below `cutoff`."""
    s = _stages(t, _most(t, max_stages))
    high, most = cutoff, _within(s, cutoff)[0]
    if most < t.layers * (1 - 1e-9):
        return float("inf")
    if len(s.available) == 1:                              # labels of one node group are fewer than the bound is worth
        return floor_s
    low, least = floor_s, min(_within(s, floor_s)[0], t.layers)
    for _ in range(STEPS):
        if high - low < FINE * high:
            break
        share = (t.layers - least) / max(most - least, 1e-9)
        middle = low + (high - low) * min(0.8, max(0.2, share))
        layers = _within(s, middle)[0]
        if layers < t.layers * (1 - 1e-9):
            low, least = middle, layers
        else:
            high, most = middle, layers
    return low * (1 - SLACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What stages from a position on can still hold in plans of a step time, by how long all stages take together at least.

    For S >= `begins`[i], prices `prices`[i, j] on the GPUs of each set of groups and any position k, the stages from k on hold at most
    `worth`[i, j, k] layers and what the free GPUs are worth: `total`[i, j] less that of the used ones.
    """

    begins: Floats                                         # [I] seconds, ascending; S below the first counts as the first
    prices: Floats                                         # [I, J, sets]
    total: Floats                                          # [I, J]
    worth: Floats                                          # [I, J, K + 1]

    def holds(self, k: int, least_s: Floats, used: Ints, layers: Ints) -> Booleans:
        """Whether `layers` [N] more may fit from position k on, beside GPUs `used` [N, sets], in plans whose stages take `least_s` at least."""
        at = np.clip(np.searchsorted(self.begins, least_s, side="right") - 1, 0, None)
        worth = self.worth[..., min(k, self.worth.shape[2]) - 1] + self.total
        fits = np.ones(len(at), dtype=bool)
        for j in range(self.prices.shape[1]):
            fits &= worth[at, j] - np.einsum("ns,ns->n", self.prices[at, j], used) >= layers * (1 - 1e-9)
        return fits


def left_within(t: Tables, time_s: float, max_stages: int | None = None) -> Left:
    """For plans faster than `time_s`."""
    s = _stages(t, max(1, _most(t, max_stages)))
    begins = s.least + np.arange(INTERVALS) * max(0.0, time_s - s.least) / INTERVALS
    width = max(0.0, time_s - s.least) / INTERVALS
    found, tails = [], []
    for begin in begins:
        prices = _priced(s, time_s - begin, begin + width - s.ends, None)[2][:-2]
        caps, rows, sums = s.caps(time_s - begin), [], []
        for scale in SCALES:
            fee = (scale * prices + s.member).min(axis=1) * s.gpus
            gain = np.maximum(0.0, np.where(caps >= 1.0, caps - fee[:, None], 0.0).max(axis=0))
            rows.append(scale * prices)
            sums.append(np.append(np.cumsum(gain[::-1])[::-1], 0.0))
        found.append(rows)
        tails.append(sums)
    prices = np.array(found)                                                                                         # [I, J, G]
    members = np.where(t.resources.members, 0.0, np.inf)
    return Left(begins=begins, prices=(prices[:, :, None, :] + members).min(axis=3), total=prices @ s.available, worth=np.array(tails))


def _most(t: Tables, max_stages: int | None) -> int:
    return min(stage_count_bound(t), max_stages or t.layers)


def _stages(t: Tables, most: int) -> _Stages:
    m, position = t.micro_batches, np.arange(1, most + 1)
    layers, last = np.diff(t.time, axis=1), np.arange(most) == 0
    tau = layers.min(axis=1)
    ahead = np.zeros(most) if t.schedule == "gpipe" else np.minimum(m, position) - 1.0
    flight = np.full(most, m) if t.schedule == "gpipe" else np.minimum(m, position)
    phi = (np.diff(t.forward, axis=1) / np.maximum(layers, 1e-300)).max(axis=1)
    sync = np.diff(t.sync, axis=2).min(axis=2).min(axis=1)
    static, activation = np.diff(t.static, axis=1).min(axis=1), np.diff(t.activation, axis=1).min(axis=1)
    held = t.head_static + t.head_activation
    held = np.minimum(held, held + t.embedding_static + t.embedding_activation - t.shared_static - t.shared_activation)
    room = (t.capacity - t.buffers)[:, None] - last * held[:, None]
    head = np.minimum(t.head_time, t.head_time + t.embedding_time - t.shared_time)         # a stage that is first and last does not pay twice
    head_sync = np.minimum(t.sync_head, t.sync_head + t.sync_embedding - t.shared_sync).min(axis=1)
    ends = float(t.embedding_time.min() + max(0.0, t.head_time.min() - t.shared_time.max()))
    edge = np.where(last, 0.0, np.minimum(t.edge, t.edge_within).min(axis=1)[:, None])
    constant = (t.sync_constant.min(axis=1)[:, None] + last * ((m - 1) * head + head_sync)[:, None]
                + (2 * (m - 1) - ahead) * edge)
    return _Stages(
        tau=tau, average=(m - 1) * tau + sync, counted=(position < m) & (t.schedule != "gpipe"), edge=2 * edge, constant=constant,
        weight=np.maximum((m - 1 - phi[:, None] * ahead) * tau[:, None] + sync[:, None], 1e-300),
        memory=room / np.maximum(static[:, None] + activation[:, None] * flight, 1e-300), gpus=t.gpus.astype(float),
        member=np.where(t.resources.members[t.set_index], 0.0, np.inf), available=t.resources.group_gpus.astype(float),
        least=float(layers.min(axis=0).sum()) + ends, ends=ends, layers=t.layers)


def _within(s: _Stages, time_s: float) -> tuple[float, Booleans]:
    """Layers that fit at most in plans faster than a time, and the kinds that these may use."""
    if s.least >= time_s or not s.weight.size:
        return 0.0, np.zeros(len(s.tau), dtype=bool)
    return _between(s, time_s, s.least, time_s, DEPTH, None)


def _between(s: _Stages, time_s: float, low: float, high: float, depth: int, start: Floats | None) -> tuple[float, Booleans]:
    """The same for plans whose S lies in an interval."""
    value, kinds, prices = _priced(s, time_s - low, high - s.ends, start)
    if depth == 0 or not kinds.any() or value > HOPELESS * s.layers:
        return value, kinds
    middle = (low + high) / 2
    parts = [_between(s, time_s, low, middle, depth - 1, prices), _between(s, time_s, middle, high, depth - 1, prices)]
    return min(value, max(part[0] for part in parts)), kinds & (parts[0][1] | parts[1][1])


def _priced(s: _Stages, slack: float, seconds: float, start: Floats | None) -> tuple[float, Booleans, Floats]:
    """Layers that fit at most by the best prices found, the kinds that may be used, and the prices [G + 2]: λ, μ, ν. T - S is at most `slack`, S at
    most `seconds` beside the ends. Subgradient steps towards L."""
    caps, limits = s.caps(slack), np.array([*s.available, max(seconds, 0.0), 0.0])
    scale = np.array([*s.available, max(seconds, 1e-300), max(slack, 1e-300)])
    prices = _first(s, caps, limits) if start is None else start
    best, best_prices, hopeful, positions = np.inf, prices, np.ones(len(s.tau), dtype=bool), np.arange(caps.shape[1])
    credit = np.where(s.counted, slack - s.constant, 0.0)                                                            # [U, K]
    for turn in range(ROUNDS):
        each = 1.0 - prices[-2] * s.tau[:, None] - prices[-1] * s.average[:, None] * s.counted                       # [U, K]
        layers = np.where(each > 0, caps, np.minimum(caps, 1.0))
        fee = (prices[:-2] + s.member).min(axis=1) * s.gpus
        worth = np.where(caps >= 1.0, layers * each + prices[-1] * credit - prices[-2] * s.edge - fee[:, None], -np.inf)
        kind = worth.argmax(axis=0)
        gain = worth[kind, positions]
        there = gain > 0
        value = float(prices @ limits + gain[there].sum())
        hopeful &= value + (worth - np.maximum(gain, 0.0)).max(axis=1) >= s.layers * (1 - 1e-9)
        if value < best:
            best, best_prices = value, prices
        if best < s.layers * (1 - 1e-9):
            return best, np.zeros_like(hopeful), best_prices
        kind, at = kind[there], positions[there]
        held = layers[kind, at]
        used = np.zeros(len(limits))
        np.add.at(used, (prices[:-2] + s.member[kind]).argmin(axis=1), s.gpus[kind])
        used[-2] = float((s.tau[kind] * held + s.edge[kind, at]).sum())
        used[-1] = float((s.average[kind] * s.counted[at] * held - credit[kind, at]).sum())
        slope = (limits - used) / scale
        norm = float(slope @ slope)
        if norm == 0.0:
            break
        step = SHRINK ** (turn // 3) * (value - 0.97 * s.layers) / norm
        prices = np.maximum(0.0, prices - step * slope / scale)
    return best, hopeful, best_prices


def _first(s: _Stages, caps: Floats, limits: Floats) -> Floats:
    """Prices at which GPUs of all groups are as dear as the layers that they can hold at best."""
    density = np.array([(np.where(s.member[:, g] == 0.0, caps.max(axis=1), 0.0) / s.gpus).max() for g in range(len(s.available))])
    return np.array([*density * min(1.0, s.layers / max(1e-300, float(density @ s.available))), 0.0, 0.0])
