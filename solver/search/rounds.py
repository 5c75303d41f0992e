"""Plans with virtual stages: all stages alike in degrees, each round of chunks covering the same number of layers.

With every stage's layers cut evenly into v chunks, a round covers L / v layers and stage i holds the same slice of every round; so the search runs
over the L / v positions of one round, each standing for v layers. Stages are added from the first on, since the fill (first chunks upstream) and the
memory are known from there:

    T >= m x_j + Σ_{i<j} (first chunk of stage i) + sync

is a path through the recurrence for any chunks. It is not always tight, so plans below the cut-off are all listed and priced exactly (no dominance).
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.search.bounds import SLACK, least_time, reach
from solver.search.labels import Found, LabelRun, StagePick
from solver.search.tables import Floats, Ints, Tables
from solver.simulate.orders import in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Tables of one round: position a stands for layers a, a + L/v, a + 2 L/v, ... counted from the first. Prefix sums over positions."""

    positions: int
    time: Floats                                           # [K, positions + 1] of all chunks together
    first_chunk: Floats                                    # [K, positions + 1] of the first chunk alone
    static: Floats
    activation: Floats
    sync: Floats                                           # [K, P, positions + 1]
    edge: Floats                                           # [K] least edge to whatever follows, all chunks, both directions


def fold(t: Tables) -> Round:
    """Sum the chunks of a round; requires L divisible by the virtual stages."""
    v = t.virtual_stages
    positions = t.layers // v

    def rows(prefix: Floats) -> Floats:
        return np.diff(prefix, axis=-1)[..., ::-1]         # per layer, from the first

    def prefix(values: Floats) -> Floats:
        return np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)

    def folded(values: Floats) -> Floats:
        return prefix(values.reshape(*values.shape[:-1], v, positions).sum(axis=-2))

    return Round(positions=positions, time=folded(rows(t.time)), first_chunk=prefix(rows(t.time)[:, :positions]), static=folded(rows(t.static)),
                 activation=folded(rows(t.activation)), sync=folded(rows(t.sync)), edge=2 * v * t.edge.min(axis=1))


def round_bounds(t: Tables, counts: Sequence[tuple[int, int]], cutoff: float) -> list[float]:
    """A lower bound on the step time for each (stages, virtual stages); infinite where no plan below `cutoff` can be.

    For a step time T a stage at position k holds at most min(layers in memory, floor(T / (m τ))) layers, in whole multiples of v; the best mix of
    kinds that the GPUs allow must reach L. From a stage with j stages before it a step also takes the fill through
    these, at least a layer each and the embedding.
    """
    layers = np.diff(t.time, axis=1)
    tau = layers.min(axis=1)
    static, activation = np.diff(t.static, axis=1).min(axis=1), np.diff(t.activation, axis=1).min(axis=1)
    sync = float((t.sync_constant + np.diff(t.sync, axis=2).min(axis=2)).max(axis=1).min())
    r = t.resources
    possible = sum(int(r.capacity[r.inside[:, i]].min() // t.gpus[t.set_index == i].min()) for i in range(len(r.sets)))
    chunk_s = t.micro_batches * float(tau.min())
    found: list[float] = []
    for stages, v in counts:
        before = np.arange(stages)[::-1]                   # stages before each position, positions counted from the last
        fill = before * float(layers.min()) + (before > 0) * float(t.embedding_time.min()) + sync
        floor = max(chunk_s * v, chunk_s * t.layers / stages) + sync
        if possible < stages or floor >= cutoff:
            found.append(float("inf"))
            continue
        # in flight by position from the last, see simulate.orders
        chunks = np.minimum(t.micro_batches * v, (v - 1) * stages + 2 * np.arange(stages) + 1)
        with np.errstate(divide="ignore", over="ignore"):
            memory = np.floor((t.capacity - t.buffers)[:, None]
                              / np.maximum(static[:, None] + activation[:, None] * (chunks / v), 1e-300) * (1 + SLACK))

        def holds(time_s: float, memory: Floats = memory, fill: Floats = fill, v: int = v, stages: int = stages) -> bool:
            load = np.floor((time_s - fill) / (t.micro_batches * tau[:, None]) * (1 + SLACK) + SLACK)
            return reach(t, np.floor(np.minimum(memory, load) / v) * v, stages) >= t.layers

        found.append(least_time(holds, floor, cutoff))
    return found


@dataclass(slots=True)
class _Front:
    placed: Ints
    used: Ints
    fill: Floats
    span: Floats
    sync: Floats
    trail: Ints                                            # [N, stages, 2] kind and positions


def run_rounds(t: Tables, stages: int, cutoff: float, *, max_labels: int, stop: Callable[[], bool] = lambda: False,
               even: bool = False) -> LabelRun:
    """All plans of `stages` stages whose bound lies below `cutoff`; not complete where more than `max_labels` were alive at once.

    `even`: with as many layers in every stage.
    """
    search = _Rounds(t, fold(t), stages, cutoff, max_labels, even)
    return search.run(stop)


class _Rounds:
    def __init__(self, t: Tables, r: Round, stages: int, cutoff: float, max_labels: int, even: bool) -> None:
        self.t, self.r, self.stages, self.cutoff, self.max_labels, self.even = t, r, stages, cutoff, max_labels, even
        self.sync_floor = float((t.sync_constant + np.diff(r.sync, axis=2).min(axis=2)).max(axis=1).min())
        self.least = np.diff(r.time, axis=1).min(axis=1)   # [K] least time of one position
        most = np.floor((cutoff - self.sync_floor) / (t.micro_batches * self.least) * (1 + SLACK) + SLACK)
        self.most = np.clip(most, 0, r.positions).astype(np.int64)

    def run(self, stop: Callable[[], bool]) -> LabelRun:
        sets = len(self.t.resources.sets)
        front = _Front(np.zeros(1, np.int64), np.zeros((1, sets), np.int64), np.zeros(1), np.zeros(1), np.full(1, self.sync_floor),
                       np.zeros((1, 0, 2), np.int64))
        labels, complete = 0, True
        for stage in range(self.stages):
            front = self._extend(front, stage)
            labels += len(front.fill)
            if len(front.fill) > self.max_labels:
                complete = False
                keep = np.sort(np.argpartition(front.span + front.sync, self.max_labels)[:self.max_labels])
                front = _Front(*(getattr(front, n)[keep] for n in ("placed", "used", "fill", "span", "sync", "trail")))
            if stop():
                complete = False
                break
        value = front.span + front.sync if front.trail.shape[1] == self.stages else np.zeros(0)
        plans = tuple(Found(bound=float(value[i]),
                            stages=tuple(StagePick(kind=int(k), layers=int(n) * self.t.virtual_stages) for k, n in front.trail[i]))
                      for i in np.argsort(value, kind="stable"))
        return LabelRun(bound=min([self.cutoff, *value.tolist()]) if complete else 0.0, plans=plans, labels=labels, complete=complete,
                        cutoff=self.cutoff)

    def _extend(self, front: _Front, stage: int) -> _Front:
        t, r, resources = self.t, self.r, self.t.resources
        last, first = stage == self.stages - 1, stage == 0
        pairs = np.array([(u, n) for u in range(t.num_kinds) for n in range(1, int(self.most[u]) + 1)
                          if not self.even or n * self.stages == self.r.positions], dtype=np.int64).reshape(-1, 2)
        upto = front.placed[:, None] + pairs[None, :, 1]
        room = (self.stages - stage - 1) * int(self.most.max(initial=0))
        left = r.positions - upto
        fits = left == 0 if last else (left > 0) & (left <= room) & (left >= self.stages - stage - 1)
        i, j = np.nonzero(fits)
        kind, count, upto = pairs[j, 0], pairs[j, 1], upto[i, j]
        used = front.used[i]
        used[np.arange(len(i)), t.set_index[kind]] += t.gpus[kind]
        before = upto - count
        flight = in_flight("interleaved", stage, self.stages, t.micro_batches, t.virtual_stages)
        static = r.static[kind, upto] - r.static[kind, before] + first * t.embedding_static[kind] + last * t.head_static[kind] + t.buffers[kind]
        activation = r.activation[kind, upto] - r.activation[kind, before] + first * t.embedding_activation[kind] + last * t.head_activation[kind]
        ok = static + activation * flight <= t.capacity[kind] * (1 + SLACK)
        ok &= ((used @ resources.inside.T.astype(np.int64)) <= resources.capacity).all(axis=1)
        if len(resources.limits):
            ok &= resources.within_budgets(used)
        edge = 0.0 if last else r.edge[kind]
        x = r.time[kind, upto] - r.time[kind, before] + first * t.embedding_time[kind] + last * t.head_time[kind] + edge
        span = np.maximum(front.span[i], t.micro_batches * x + front.fill[i])
        fill = front.fill[i] + r.first_chunk[kind, upto] - r.first_chunk[kind, before] + first * t.embedding_time[kind] + edge / t.virtual_stages
        q = t.sync_constant[kind] + r.sync[kind, :, upto] - r.sync[kind, :, before] + first * t.sync_embedding[kind] + last * t.sync_head[kind]
        sync = np.maximum(front.sync[i], q.max(axis=1)) if len(i) else front.sync[i]
        ok &= span + sync < self.cutoff * (1 - SLACK)
        at = np.nonzero(ok)[0]
        step = np.stack([kind[at], count[at]], axis=1)[:, None, :]
        return _Front(upto[at], used[at], fill[at], span[at], sync[at], np.concatenate([front.trail[i[at]], step], axis=1))
