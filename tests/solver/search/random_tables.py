"""Small random tables, and the judgement of a plan over them by plain enumeration: no search code but the table type."""
import itertools
from dataclasses import replace

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
    edge_scale, sync_scale = rng.choice([0.0, 0.2, 2.0]), rng.choice([0.1, 0.3, 3.0])
    classes = rng.integers(0, 2, layers) if unlike_layers else np.zeros(layers, int)
    weight = np.array([1.0, rng.uniform(0.3, 3.0)])[classes]
    per_layer = weight[None, :] * (speed / gpus)[:, None]
    share = rng.uniform(0.2, 0.45, kinds) if rng.random() < 0.5 else rng.uniform(0.0, 1.0, kinds)
    static = weight[None, :] * rng.uniform(0.5, 1.5, kinds)[:, None]
    activation = weight[None, :] * rng.uniform(0.1, 0.6, kinds)[:, None]
    pieces = 2
    sync = np.abs(rng.normal(0, sync_scale, (kinds, pieces, 1))) * weight[None, None, ::-1]
    unique = tuple(dict.fromkeys(chosen))
    capacity = {n: int(rng.integers(2, 9)) for n in names}
    unions = sorted({frozenset().union(*(frozenset(unique[i]) for i in range(len(unique)) if mask >> i & 1)) for mask in range(1, 2**len(unique))},
                    key=sorted)
    resources = Resources(sets=unique, inside=np.array([[frozenset(s) <= u for s in unique] for u in unions]),
                          capacity=np.array([sum(capacity[g] for g in u) for u in unions]), group_gpus=np.array([capacity[n] for n in names]),
                          members=np.array([[n in s for n in names] for s in unique]), rates=np.zeros((0, len(unique))),
                          limits=np.zeros(0), group_rates=np.zeros((0, len(names))))
    budget = static.sum(axis=1).mean() + 2 * activation.sum(axis=1).mean() + 4
    spec = [UnitSpec(groups=s, tp=int(g), cp=1, ulysses=1, dp=1, replicas=1, ep=1, etp=1, micro_batch_size=1, micro_batches=micro_batches,
                     recompute="none", zero_stage=1, sequence_parallel=True, vocabulary_parallel_loss=True, framework=None)
            for s, g in zip(chosen, gpus, strict=True)]
    ends = {}
    for name, most in (("time", rng.uniform(0.1, 3.0)), ("static", 1.0), ("activation", 0.2), ("sync", sync_scale)):
        shape = (kinds, pieces) if name == "sync" else kinds
        ends[f"head_{name}"], ends[f"embedding_{name}"] = rng.uniform(0, most, shape), rng.uniform(0, most, shape)
        ends[f"shared_{name}"] = np.minimum(ends[f"head_{name}"], ends[f"embedding_{name}"]) * rng.choice([0.0, rng.random()])
    for name in ("head", "embedding", "shared"):
        ends[f"{name}_forward"] = ends[f"{name}_time"] * (share if name == "shared" else rng.uniform(share, 1.0))
    ends["sync_head"], ends["sync_embedding"] = ends.pop("head_sync"), ends.pop("embedding_sync")
    edge, wrap = edge_scale * rng.uniform(0, 1, (kinds, kinds)), edge_scale * rng.uniform(0, 1, (kinds, kinds))
    within = int(rng.integers(1, layers + 1)) if unlike_layers and virtual_stages == 1 and rng.random() < 0.5 else 0    # an encoder's output travels
    return Tables(kinds=tuple(Kind(spec=s, gpus=int(g)) for s, g in zip(spec, gpus, strict=True)), layers=layers, micro_batches=micro_batches,
                  schedule=schedule, virtual_stages=virtual_stages, time=_prefix(per_layer), forward=_prefix(per_layer * share[:, None]),
                  static=_prefix(static), activation=_prefix(activation), buffers=rng.uniform(0, 1, kinds),
                  capacity=np.full(kinds, budget * (tight or 9.0)), sync_constant=rng.uniform(0, sync_scale, (kinds, pieces)),
                  sync=np.concatenate([np.zeros((kinds, pieces, 1)), np.cumsum(sync, axis=2)], axis=2),
                  edge=edge, wrap=wrap, within=within, edge_within=edge * rng.uniform(1, 2) if within else edge,
                  gpus=np.asarray(gpus, dtype=np.int64), set_index=np.array([unique.index(s) for s in chosen]), block=np.ones(kinds, dtype=np.int64),
                  resources=resources, **ends)


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
            edges = t.edge_within if lo < t.within else t.edge
            edge = edges[u, plan[i + 1].kind] if i + 1 < stages else (t.wrap[u, plan[0].kind] if c < v - 1 else 0.0)
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


def brute_force(t: Tables, *, stages: int | None = None, most_stages: int | None = None,
                allowed: list[set[int]] | None = None) -> tuple[float, tuple[StagePick, ...] | None]:
    """Best plan by trying every sequence of kinds and every composition of the layers; `allowed` limits the kinds by position from the last."""
    best, plan = float("inf"), None
    for p in range(1, t.layers + 1):
        if (stages is not None and p != stages) or (most_stages is not None and p > most_stages) or t.layers % t.virtual_stages:
            continue
        units = t.layers // t.virtual_stages
        for cuts in itertools.combinations(range(1, units), p - 1):
            sizes = [b - a for a, b in zip((0, *cuts), (*cuts, units), strict=True)]
            for kinds in itertools.product(*(sorted(allowed[p - 1 - i]) if allowed else range(t.num_kinds) for i in range(p))):
                picks = tuple(StagePick(kind=k, layers=n * t.virtual_stages) for k, n in zip(kinds, sizes, strict=True))
                value = judge(t, picks)
                if value is not None and value < best:
                    best, plan = value, picks
    return best, plan


def drawn(seed: int) -> Tables:
    """Tables without virtual stages, of every sort, by number."""
    rng = np.random.default_rng(seed)
    return random_tables(rng, layers=int(rng.integers(1, 5)), groups=int(rng.integers(1, 4)), kinds=int(rng.integers(1, 5)),
                         micro_batches=int(rng.choice([1, 2, 3, 5, 8, 17])), schedule=str(rng.choice(["1f1b", "1f1b", "gpipe"])),
                         unlike_layers=bool(rng.random() < 0.5), straddle=bool(rng.random() < 0.3),
                         tight=float(rng.uniform(0.5, 1.1)) if rng.random() < 0.5 else None, equal_gpus=bool(rng.random() < 0.3))


def siblings(t: Tables, rng: np.random.Generator) -> Tables:
    """Twice the kinds: each once more, a little better or worse in some ways, so that many are dominated and some only seem so."""
    changed: dict[str, np.ndarray] = {}
    better, same = rng.uniform(0.9, 1.0) if rng.random() < 0.5 else 1.0, rng.random() < 0.5
    for name in ("time", "static", "activation", "head_time", "head_static", "head_activation", "embedding_time", "embedding_static",
                 "embedding_activation", "buffers", "sync_constant", "sync", "sync_embedding", "sync_head"):
        value = getattr(t, name)
        factor = np.ones(t.num_kinds) if same else rng.uniform(0.8, 1.0, t.num_kinds) if rng.random() < 0.7 else rng.uniform(0.9, 1.2, t.num_kinds)
        changed[name] = np.concatenate([value, value * (better * factor).reshape(-1, *(1,) * (value.ndim - 1))])
    for name in ("forward", "head_forward", "embedding_forward"):
        time, value = changed[name.replace("forward", "time")], getattr(t, name)
        share = rng.uniform(0.0, 1.0, t.num_kinds).reshape(-1, *(1,) * (value.ndim - 1))
        changed[name] = np.concatenate([value, time[t.num_kinds:] * share])
    for name in ("shared_time", "shared_forward", "shared_static", "shared_activation", "shared_sync"):
        changed[name] = np.zeros((2 * t.num_kinds, *getattr(t, name).shape[1:]))
    for name in ("capacity", "gpus", "set_index", "block"):
        changed[name] = np.concatenate([getattr(t, name)] * 2)
    for name in ("edge", "edge_within", "wrap"):
        changed[name] = np.tile(getattr(t, name), (2, 2))
    return replace(t, kinds=t.kinds * 2, **changed)


def drawn_siblings(seed: int) -> Tables:
    """Tables with many dominated kinds, by number."""
    rng = np.random.default_rng(seed)
    return siblings(random_tables(rng, layers=int(rng.integers(1, 5)), groups=int(rng.integers(1, 3)), kinds=int(rng.integers(1, 3)),
                                  micro_batches=int(rng.choice([1, 2, 3, 5, 8])), schedule=str(rng.choice(["1f1b", "1f1b", "gpipe"])),
                                  unlike_layers=bool(rng.random() < 0.3), tight=float(rng.uniform(0.4, 0.9)) if rng.random() < 0.6 else None), rng)


def drawn_rounds(seed: int) -> tuple[Tables, int]:
    """Tables with virtual stages, and a number of stages that divides the micro-batches."""
    rng = np.random.default_rng(seed)
    stages, v = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    t = random_tables(rng, layers=v * int(rng.integers(stages, 5)), groups=int(rng.integers(1, 3)), kinds=int(rng.integers(1, 4)),
                      micro_batches=stages * int(rng.integers(1, 4)), schedule="interleaved", virtual_stages=v,
                      unlike_layers=bool(rng.random() < 0.5), straddle=bool(rng.random() < 0.3),
                      tight=float(rng.uniform(0.5, 1.5)) if rng.random() < 0.5 else None, equal_gpus=True)
    return t, stages
