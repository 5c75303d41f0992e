"""The label dynamic program: stages are added from the last to the first, and partial plans that cannot win are dropped.

A label is a partial plan: l layers placed in k stages, GPUs used by set of node groups, the kind of its most upstream stage, s = Σ x, Z = max z, Q =
max sync. Its plan costs at least s + cost-to-go + max(Z, ·) + max(Q, ·). With `dominance`, of two labels equal in (l, kind's edge row, GPUs) the one
with larger s, Z and Q goes: s enters z monotonically only in terms that grow with it except the first of `bounds.stage_term`, so that term is left
out of a label's Z here. The least value found is therefore a lower bound on every plan of the choice, and the plan that has it is the candidate to
price exactly.
"""
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.search.bounds import SLACK, held, most_layers, stage_count_bound, sync_floor
from solver.search.dominated import undominated
from solver.search.prices import CostToGo, cost_to_go
from solver.search.tables import Floats, Ints, Tables

COLUMNS = ("layers", "kind", "used", "s", "z", "q", "parent", "count")
CHUNK = 250_000                                            # elements of one expansion


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePick:
    """A stage by kind index and number of layers."""

    kind: int
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A complete plan with its lower bound; stages from the first to the last."""

    bound: float
    stages: tuple[StagePick, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRun:
    """`bound` is proved for the whole choice (the cut-off where nothing below it exists).

    `complete` is False where labels were dropped to stay in memory.
    """

    bound: float
    plans: tuple[Found, ...]
    labels: int
    complete: bool
    cutoff: float

    @property
    def bound_beyond(self) -> float:
        """Of a complete run whose plans have all been priced: nothing else lies below the cut-off."""
        return self.cutoff if self.complete else 0.0


@dataclass(slots=True)
class _Level:
    """Labels of one level as columns."""

    layers: Ints
    kind: Ints
    used: Ints                                             # [N, sets] GPUs
    s: Floats
    z: Floats
    q: Floats
    parent: Ints
    count: Ints                                            # layers of the newest stage

    def take(self, keep: Ints) -> "_Level":
        return _Level(*(getattr(self, n)[keep] for n in COLUMNS))


def run(t: Tables, cutoff: float, *, dominance: bool, max_labels: int, keep: int, max_stages: int | None = None,
        go: CostToGo | None = None, stop: Callable[[], bool] = lambda: False, each: int | None = None) -> LabelRun:
    """All plans of a choice that may be faster than `cutoff` seconds (with `dominance`: at least the one of least bound), the `keep` best of them.

    `go`: bounds on completions made for this or a later cut-off. `max_labels` bounds a level's size; beyond it the best are kept and the run is not
    complete. `each`: layers of every stage, where they must be equal.
    """
    search = _Search(t, cutoff, dominance, max_labels, keep, max_stages, go, each)
    return search.run(stop)


class _Search:
    def __init__(self, t: Tables, cutoff: float, dominance: bool, max_labels: int, keep: int, max_stages: int | None,
                 go: CostToGo | None, each: int | None) -> None:
        self.t, self.cutoff, self.dominance, self.max_labels, self.keep, self.each = t, cutoff, dominance, max_labels, keep, each
        self.most_stages = min(stage_count_bound(t), max_stages or t.layers)
        self.q0 = sync_floor(t)
        self.go = go if go is not None else cost_to_go(t, cutoff)
        self.levels: list[_Level] = []
        self.plans: list[tuple[float, int, int, int, int]] = []     # bound, level, parent label, kind, layers
        self.labels, self.complete = 0, True
        rows = np.hstack([t.edge.T, t.edge_within.T]) if t.within else t.edge.T
        self.edge_row = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)        # downstream kinds that cost the upstream the same

    def run(self, stop: Callable[[], bool]) -> LabelRun:
        sets = len(self.t.resources.sets)
        level = _Level(layers=np.zeros(1, np.int64), kind=np.full(1, -1), used=np.zeros((1, sets), np.int64), s=np.zeros(1), z=np.zeros(1),
                       q=np.full(1, self.q0), parent=np.zeros(1, np.int64), count=np.zeros(1, np.int64))
        for k in range(1, self.most_stages + 1):
            self.levels.append(level)
            level = self._expand(level, k)
            self.labels += len(level.s)
            if len(level.s) == 0:
                break
            if stop():
                self.complete = False
                break
        self.plans.sort(key=lambda p: p[0])
        self.complete &= self.dominance or len(self.plans) <= self.keep        # a list is all plans or not complete
        found = tuple(self._trace(p) for p in self.plans[:self.keep])
        bound = min([self.cutoff, *(p[0] for p in self.plans)]) if self.complete else 0.0
        return LabelRun(bound=bound, plans=found, labels=self.labels, complete=self.complete, cutoff=self.cutoff)

    def _trace(self, plan: tuple[float, int, int, int, int]) -> Found:
        bound, level, parent, kind, layers = plan
        stages = [StagePick(kind=kind, layers=layers)]
        while level > 0:
            row = self.levels[level]
            stages.append(StagePick(kind=int(row.kind[parent]), layers=int(row.count[parent])))
            parent, level = int(row.parent[parent]), level - 1
        return Found(bound=bound, stages=tuple(stages))

    def _expand(self, level: _Level, k: int) -> _Level:
        """All stages that may stand before those of the level; pairs (kind, layers) in order of the capacity that they waste."""
        limits = np.minimum(most_layers(self.t, k, self.cutoff - self.q0), self.go.limit[min(k, len(self.go.limit)) - 1])
        kinds = undominated(self.t, k, limits, exact=not self.dominance)
        if len(kinds) == 0:
            return level.take(np.zeros(0, np.int64))
        widest = int(limits[kinds].max())
        grid_kind, grid_count = np.repeat(kinds, widest), np.tile(np.arange(1, widest + 1), len(kinds))
        inside = grid_count <= limits[grid_kind] if self.each is None else (grid_count == self.each) & (grid_count <= limits[grid_kind])
        kind, count = grid_kind[inside], grid_count[inside]
        rate, total = self.go.rates(k)
        waste = self.t.gpus[kind] * rate[self.t.set_index[kind]] - count
        order = np.argsort(waste, kind="stable")
        kind, count, waste = kind[order], count[order], waste[order]
        spare = total - level.used @ rate - (self.t.layers - level.layers)
        each = np.searchsorted(waste, spare * (1 + SLACK) + 1e-6, side="right")
        parts, first = [], 0
        while first < len(level.s):
            size = max(1, int(np.searchsorted(np.cumsum(each[first:]), CHUNK)))
            rows = np.arange(first, min(first + size, len(level.s)))
            row = np.repeat(rows, each[rows])
            pair = np.arange(len(row)) - np.repeat(np.cumsum(each[rows]) - each[rows], each[rows])
            parts.append(self._expand_rows(level, row, kind[pair], count[pair], k))
            first += size
        merged = _Level(*(np.concatenate([getattr(p, n) for p in parts]) for n in COLUMNS))
        return self._thin(merged, k)

    def _expand_rows(self, level: _Level, row: Ints, kind: Ints, count: Ints, k: int) -> _Level:
        t, r = self.t, self.t.resources
        upto = level.layers[row] + count
        inside = upto <= t.layers
        row, kind, count, upto = row[inside], kind[inside], count[inside], upto[inside]
        used = level.used[row]
        used[np.arange(len(row)), t.set_index[kind]] += t.gpus[kind]
        fits = np.ones(len(row), dtype=bool)
        for union, capacity in zip(r.inside, r.capacity, strict=True):
            fits &= used[:, union].sum(axis=1) <= capacity
        if len(r.limits):
            fits &= r.within_budgets(used)
        row, kind, count, upto, used = row[fits], kind[fits], count[fits], upto[fits], used[fits]
        if len(row) == 0:
            return level.take(np.zeros(0, np.int64))
        first = upto == t.layers
        s, z, q, ok = self._costs(level, row, kind, count, upto, first, k)
        for i in np.nonzero(ok & first)[0]:
            self.plans.append((float(s[i] + z[i] + q[i]), k - 1, int(row[i]), int(kind[i]), int(count[i])))
        at = np.nonzero(ok & ~first)[0] if k < self.most_stages else np.zeros(0, np.int64)
        at = at[self.go.bound(k + 1, upto[at], used[at], s[at], z[at], q[at]) < self.cutoff * (1 - SLACK)]
        return _Level(layers=upto[at], kind=kind[at], used=used[at], s=s[at], z=z[at], q=q[at], parent=row[at], count=count[at])

    def _costs(self, level: _Level, row: Ints, kind: Ints, count: Ints, upto: Ints, first: NDArray[np.bool_],
               k: int) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        """New s, Z, Q, and which are legal in memory and below the cut-off."""
        t, m, before = self.t, self.t.micro_batches, upto - count
        last = k == 1
        both = first & last
        flight = held(t.schedule, m, k)
        activation = (t.activation[kind, upto] - t.activation[kind, before]
                      + last * t.head_activation[kind] + first * t.embedding_activation[kind] - both * t.shared_activation[kind])
        static = (t.static[kind, upto] - t.static[kind, before]
                  + last * t.head_static[kind] + first * t.embedding_static[kind] - both * t.shared_static[kind])
        ok = static + activation * flight + t.buffers[kind] <= t.capacity[kind] * (1 + SLACK)
        edge = 0.0 if last else t.edges(kind, level.kind[row], before)
        forward = (t.forward[kind, upto] - t.forward[kind, before]
                   + last * t.head_forward[kind] + first * t.embedding_forward[kind] - both * t.shared_forward[kind] + edge)
        x = (t.time[kind, upto] - t.time[kind, before]
             + last * t.head_time[kind] + first * t.embedding_time[kind] - both * t.shared_time[kind] + 2 * edge)
        behind = level.s[row]
        z = (m - 1) * x if t.schedule == "gpipe" else (m - 1) * x - (min(m, k) - 1) * forward
        if t.schedule != "gpipe" and m >= k + 1:
            z = np.maximum(z, (m - k) * x + behind)
        sync = (t.sync_constant[kind] + t.sync[kind, :, upto] - t.sync[kind, :, before]
                + last * t.sync_head[kind] + first[:, None] * t.sync_embedding[kind])
        sync = sync - both[:, None] * t.shared_sync[kind]
        q = np.maximum(level.q[row], sync.max(axis=1))
        s, z = behind + x, np.maximum(level.z[row], z)
        ok &= s + z + q < self.cutoff * (1 - SLACK)
        return s, z, q, ok

    def _thin(self, level: _Level, k: int) -> _Level:
        if len(level.s) > 1 and self.dominance:
            level = level.take(self._undominated(level))
        if len(level.s) > self.max_labels:
            self.complete = False
            value = self.go.bound(k + 1, level.layers, level.used, level.s, level.z, level.q)
            level = level.take(np.sort(np.argpartition(value, self.max_labels)[:self.max_labels]))
        return level

    def _undominated(self, level: _Level) -> Ints:
        """Drop dominated labels.

        Of those with equal (layers, edge row, GPUs): the ones that another is no worse than in s, Z and Q. In order of s, each is compared with three
        before it, of least Z, of least Q and of least Z + Q. So some stay that could go; none goes that could be the best.
        """
        key = level.layers * (self.edge_row.max() + 1) + self.edge_row[level.kind]
        for column in level.used.T:                        # ranks, so that keys of clusters of any size stay within 64 bits
            rank = np.unique(column, return_inverse=True)[1].reshape(-1)
            key = np.unique(key * (int(rank.max()) + 1) + rank, return_inverse=True)[1].reshape(-1)
        z_rank = np.unique(np.maximum(level.z, self.go.z_floor), return_inverse=True)[1].reshape(-1)
        q_rank = np.unique(level.q, return_inverse=True)[1].reshape(-1)
        order = np.lexsort((q_rank, z_rank, level.s, key))
        sorted_key = key[order]
        new = np.concatenate(([True], sorted_key[1:] != sorted_key[:-1]))
        group = np.cumsum(new) - 1
        z, q, place = z_rank[order], q_rank[order], np.arange(len(order))
        dropped = np.zeros(len(order), dtype=bool)
        for value in (z, q, np.unique(np.maximum(level.z, self.go.z_floor) + level.q, return_inverse=True)[1].reshape(-1)[order]):
            later = value + (group[-1] - group) * (int(value.max()) + 1)       # a new group begins below all values of the one before
            rival = np.maximum.accumulate(np.where(later == np.minimum.accumulate(later), place, 0))[:-1]         # of least value so far
            dropped[1:] |= (z[rival] <= z[1:]) & (q[rival] <= q[1:])
        return np.sort(order[new | ~dropped])
