"""Small random tables, and the judgement of a plan over them by plain enumeration: no search code but the table type."""
import itertools

import numpy as np

from solver.cost.unit import UnitSpec
from solver.search.labels import StagePick
from solver.search.space import Kind
from solver.search.tables import Resources, Tables
from solver.simulate.orders import in_flight
from solver.simulate.timeline import ChunkTime, makespan


def random_tables(rng: np.random.Generator, *, layers: int, groups: int, kinds: int, micro_batches: int, schedule: str = "1f1b",
                  virtual_stages: int = 1, unlike_layers: bool = False, straddle: bool = False, tight: float | None = None,
                  equal_gpus: bool = False) -> Tables:
    """Kinds over node groups with GPU counts, times, memory, edges and sync drawn at random; `tight` scales memory to bind."""
    names = [f"g{i}" for i in range(groups)]
    sets = [(n,) for n in names] + ([tuple(names)] if straddle and groups > 1 else [])
    chosen = [sets[i % len(sets)] for i in range(kinds)]
    gpus = np.full(kinds, 2) if equal_gpus else rng.choice([1, 2, 4], kinds)
    speed = rng.uniform(0.5, 3.0, kinds)
    classes = rng.integers(0, 2, layers) if unlike_layers else np.zeros(layers, int)
    weight = np.array([1.0, rng.uniform(0.3, 3.0)])[classes]
    per_layer = weight[None, :] * (speed / gpus)[:, None]
    share = rng.uniform(0.2, 0.45, kinds)
    static = weight[None, :] * rng.uniform(0.5, 1.5, kinds)[:, None]
    activation = weight[None, :] * rng.uniform(0.1, 0.6, kinds)[:, None]
    pieces = 2
    sync = np.abs(rng.normal(0, 0.2, (kinds, pieces, 1))) * weight[None, None, :]
    unique = tuple(dict.fromkeys(chosen))
    capacity = {n: int(rng.integers(2, 9)) for n in names}
    unions = sorted({frozenset().union(*(frozenset(unique[i]) for i in range(len(unique)) if mask >> i & 1)) for mask in range(1, 2**len(unique))},
                    key=sorted)
    resources = Resources(sets=unique, inside=np.array([[frozenset(s) <= u for s in unique] for u in unions]),
                          capacity=np.array([sum(capacity[g] for g in u) for u in unions]), group_gpus=np.array([capacity[n] for n in names]),
                          members=np.array([[n in s for n in names] for s in unique]), price=np.zeros(len(unique)), price_limit=None)
    budget = static.sum(axis=1).mean() + 2 * activation.sum(axis=1).mean() + 4
    zeros = np.zeros(kinds)
    spec = [UnitSpec(groups=s, tp=int(g), cp=1, ulysses=1, dp=1, replicas=1, ep=1, etp=1, micro_batch_size=1, micro_batches=micro_batches,
                     recompute="none", zero_stage=1, sequence_parallel=True, vocabulary_parallel_loss=True, framework=None)
            for s, g in zip(chosen, gpus, strict=True)]
    return Tables(kinds=tuple(Kind(spec=s, gpus=int(g)) for s, g in zip(spec, gpus, strict=True)), layers=layers, micro_batches=micro_batches,
                  schedule=schedule, virtual_stages=virtual_stages,
                  time=_prefix(per_layer), forward=_prefix(per_layer * share[:, None]), static=_prefix(static),
                  activation=_prefix(activation), head_time=rng.uniform(0, 2, kinds), head_forward=zeros + 0.1, head_static=rng.uniform(0, 1, kinds),
                  head_activation=rng.uniform(0, .2, kinds), embedding_time=rng.uniform(0, 0.5, kinds), embedding_forward=zeros + 0.01,
                  embedding_static=rng.uniform(0, 1, kinds), embedding_activation=rng.uniform(0, .2, kinds), buffers=rng.uniform(0, 1, kinds),
                  shared_time=zeros + 0.01, shared_forward=zeros + 0.005, shared_static=zeros + 0.1,
                  shared_activation=zeros + 0.02, shared_sync=rng.uniform(0, 0.1, (kinds, pieces)),
                  capacity=zeros + budget * (tight or 9.0), sync_constant=rng.uniform(0, 0.3, (kinds, pieces)), sync=np.concatenate(
                      [np.zeros((kinds, pieces, 1)), np.cumsum(sync, axis=2)], axis=2), sync_embedding=rng.uniform(0, 0.3, (kinds, pieces)),
                  sync_head=rng.uniform(0, 0.3, (kinds, pieces)), edge=rng.uniform(0, 0.2, (kinds, kinds)), wrap=rng.uniform(0, 0.2, (kinds, kinds)),
                  gpus=np.asarray(gpus, dtype=np.int64), set_index=np.array([unique.index(s) for s in chosen]), resources=resources)


def _prefix(rows: np.ndarray) -> np.ndarray:
    """Prefix sums from the last layer."""
    return np.concatenate([np.zeros((len(rows), 1)), np.cumsum(rows[:, ::-1], axis=1)], axis=1)


def judge(t: Tables, plan: tuple[StagePick, ...]) -> float | None:
    """Exact step time of a plan, or None where it breaks memory or resources. Written apart from the search."""
    stages, v = len(plan), t.virtual_stages
    used = [0] * len(t.resources.sets)
    chunks, sync, at = [], 0.0, 0
    period = t.layers // v
    for i, pick in enumerate(plan):
        u = pick.kind
        used[t.set_index[u]] += int(t.gpus[u])
        width = pick.layers // v
        row, static, activation, q = [], t.buffers[u], 0.0, t.sync_constant[u].copy()
        for c in range(v):
            hi = t.layers - c * period - at
            lo = hi - width
            f, x = t.forward[u, hi] - t.forward[u, lo], t.time[u, hi] - t.time[u, lo]
            static += t.static[u, hi] - t.static[u, lo]
            activation += t.activation[u, hi] - t.activation[u, lo]
            q += t.sync[u, :, hi] - t.sync[u, :, lo]
            edge = t.edge[u, plan[i + 1].kind] if i + 1 < stages else (t.wrap[u, plan[0].kind] if c < v - 1 else 0.0)
            if i == 0 and c == 0:
                f, x = f + t.embedding_forward[u], x + t.embedding_time[u]
            if i == stages - 1 and c == v - 1:
                f, x = f + t.head_forward[u], x + t.head_time[u]
            if stages == 1 and c == 0:
                f, x = f - t.shared_forward[u], x - t.shared_time[u]
            row.append(ChunkTime(forward_s=f + edge, backward_s=x - f + edge))
        at += width
        if i == 0:
            static, activation, q = static + t.embedding_static[u], activation + t.embedding_activation[u], q + t.sync_embedding[u]
        if i == stages - 1:
            static, activation, q = static + t.head_static[u], activation + t.head_activation[u], q + t.sync_head[u]
        if stages == 1:
            static, activation, q = static - t.shared_static[u], activation - t.shared_activation[u], q - t.shared_sync[u]
        if static + activation * in_flight(t.schedule, i, stages, t.micro_batches, v) > t.capacity[u]:
            return None
        chunks.append(row)
        sync = max(sync, float(q.max()))
    if ((t.resources.inside.astype(int) @ np.array(used)) > t.resources.capacity).any():
        return None
    return makespan("interleaved" if v > 1 else t.schedule, chunks, t.micro_batches) + sync


def brute_force(t: Tables, *, stages: int | None = None, most_stages: int | None = None) -> tuple[float, tuple[StagePick, ...] | None]:
    """Best plan by trying every sequence of kinds and every composition of the layers."""
    best, plan = float("inf"), None
    for p in range(1, t.layers + 1):
        if (stages is not None and p != stages) or (most_stages is not None and p > most_stages) or t.layers % t.virtual_stages:
            continue
        units = t.layers // t.virtual_stages
        for cuts in itertools.combinations(range(1, units), p - 1):
            sizes = [b - a for a, b in zip((0, *cuts), (*cuts, units), strict=True)]
            for kinds in itertools.product(range(t.num_kinds), repeat=p):
                picks = tuple(StagePick(kind=k, layers=n * t.virtual_stages) for k, n in zip(kinds, sizes, strict=True))
                value = judge(t, picks)
                if value is not None and value < best:
                    best, plan = value, picks
    return best, plan
