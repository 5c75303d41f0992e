"""Kinds that another kind beats at a position in every way that the search can see.

The other takes fewer or equal GPUs of the same groups, is no slower and no larger, and has no dearer edges.
"""
import numpy as np
from numpy.typing import NDArray

from solver.search.bounds import SLACK, held
from solver.search.tables import Floats, Ints, Tables


def capability(t: Tables, k: int, limits: Ints) -> NDArray[np.int64] | None:
    """[K, 2] most layers at position k as a middle (or last) and as the first stage, by memory and by `limits`.

    None where layers are unlike, so that counts do not tell.
    """
    static, activation = np.diff(t.static, axis=1), np.diff(t.activation, axis=1)
    if np.ptp(static, axis=1).max() > 0 or np.ptp(activation, axis=1).max() > 0:
        return None
    flight, last = held(t.schedule, t.micro_batches, k), k == 1
    per_layer = static[:, 0] + activation[:, 0] * flight
    fixed = t.buffers + last * (t.head_static + t.head_activation * flight)
    first = fixed + t.embedding_static + t.embedding_activation * flight - last * (t.shared_static + t.shared_activation * flight)
    room = np.stack([t.capacity - fixed, t.capacity - first], axis=1)
    counts = np.floor(room / np.maximum(per_layer, 1e-300)[:, None] * (1 + SLACK) + SLACK)
    return np.clip(np.minimum(counts, limits[:, None]), 0, t.layers).astype(np.int64)


def undominated(t: Tables, k: int, limits: Ints, *, exact: bool) -> Ints:
    """Indices of the kinds worth trying at position k.

    Every plan with another kind there has one with one of these that is no worse in s, Z, Q, GPUs and edges. With `exact` none worse by the exact
    recurrence, which a longer forward can lengthen even where the backward is as much shorter, and that fits wherever the other does.
    """
    m = t.micro_batches
    x, forward = np.diff(t.time, axis=1), np.diff(t.forward, axis=1)
    share = 0 if t.schedule == "gpipe" else min(m, k) - 1
    last = k == 1

    def times(total: Floats, ahead: Floats) -> list[Floats]:
        return [ahead, total - ahead] if exact else [total, (m - 1) * total - share * ahead]

    costs: list[Floats] = [
        *times(x, forward), *times(t.embedding_time[:, None], t.embedding_forward[:, None]), t.edge, t.edge.T, t.edge_within,
        t.edge_within.T, t.sync_constant,
        np.diff(t.sync, axis=2).reshape(t.num_kinds, -1), t.sync_embedding, t.gpus[:, None].astype(float), t.resources.rates.T[t.set_index]]
    if last:
        costs += [*times(t.head_time[:, None], t.head_forward[:, None]), t.sync_head, *times(-t.shared_time[:, None], -t.shared_forward[:, None]),
                  -t.shared_sync]
    counts = capability(t, k, limits)
    if counts is not None:
        costs.append(-counts.astype(float))
    else:
        costs += [np.diff(t.static, axis=1), np.diff(t.activation, axis=1), t.buffers[:, None], -t.capacity[:, None], t.embedding_static[:, None],
                  t.embedding_activation[:, None], -limits[:, None].astype(float)]
        costs += [t.head_static[:, None], t.head_activation[:, None], -t.shared_static[:, None], -t.shared_activation[:, None]] if last else []
    table = np.hstack(costs)
    legal = np.nonzero(limits > 0)[0]
    order = legal[np.lexsort((legal, table[legal].sum(axis=1)))]
    kept: list[int] = []
    for u in order:
        rivals = [w for w in kept if t.set_index[w] == t.set_index[u] and not (exact and t.block[u] % t.block[w])]
        if not rivals or not (table[rivals] <= table[u]).all(axis=1).any():
            kept.append(int(u))
    return np.array(sorted(kept), dtype=np.int64)
