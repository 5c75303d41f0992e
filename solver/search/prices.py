"""What a partial plan still costs at least: prices on GPUs, positions with their memory, and the capacity that is left.

For prices λ >= 0 per GPU and group, any completion from position k on costs at least V_λ[k, l] - Σ_g λ_g (N_g - used), where V_λ[k, l] is the least Σ
(x + λ gpus) over ways to place the layers behind the first l, every stage within the memory that its position leaves; how many GPUs there are is what
the prices stand for. λ = 0 gives the plain floor; others know that fast GPUs, and memory at far positions, are scarce.
"""
from dataclasses import dataclass

import numpy as np

from solver.search.bounds import SLACK, forward_share, layer_floor, most_layers, stage_count_bound, sync_floor
from solver.search.capacity import Left, left_within
from solver.search.tables import Floats, Ints, Tables

PRICE_SCALES = (0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostToGo:
    """Bounds for labels. `values` [J, positions, L + 1] is V_λ from l placed layers on at position k (the last row serves all later ones)."""

    values: Floats
    left: Floats                                           # [J] Σ λ_g N_g
    used_price: Floats                                     # [J, sets] what a used GPU gives back at least
    z_floor: float
    limit: Ints                                            # [positions, K] most layers of a stage below the cut-off
    rate: Floats                                           # [positions, sets] most layers that one GPU still holds, least over the set's groups
    total: Floats                                          # [positions] layers that all GPUs hold
    layers: int
    capacity: Left | None                                  # finer, where it is worth its making

    def rates(self, k: int) -> tuple[Floats, float]:
        """Layers per used GPU by set, and of all GPUs, for stages at position k and later."""
        row = min(k, len(self.total)) - 1
        return self.rate[row], float(self.total[row])

    def root(self, t: Tables) -> float:
        """Least step time of any plan: the bound of the empty label, with the cheapest head, less what a single stage does not pay twice."""
        start = self.bound(1, np.zeros(1, np.int64), np.zeros((1, self.used_price.shape[1]), np.int64), np.zeros(1), np.zeros(1), np.zeros(1))
        return float(start[0] + t.head_time.min() - t.shared_time.max() + sync_floor(t)) * (1 - SLACK)

    def bound(self, k: int, placed: Ints, used: Ints, s: Floats, z: Floats, q: Floats) -> Floats:
        """Least step time of any completion of labels whose next stage is at position k; infinite where the GPUs left cannot hold the layers left."""
        row = min(k, self.values.shape[1]) - 1
        value = self.values[:, row, placed] - self.left[:, None] + self.used_price @ used.T
        whole = s + np.maximum(value.max(axis=0), 0.0)
        rate, total = self.rates(k)
        fits = (total - used @ rate) * (1 + SLACK) + 1e-6 >= self.layers - placed
        if self.capacity is not None:
            fits &= self.capacity.holds(k, whole, used, self.layers - placed)
        return np.where(fits, whole + np.maximum(z, self.z_floor) + q, np.inf)


def cost_to_go(t: Tables, cutoff: float, scales: tuple[float, ...] = PRICE_SCALES) -> CostToGo:
    """Bounds on completions of plans below `cutoff` seconds, with one price vector per scale; without any, the floor of the layers left alone."""
    r, m = t.resources, t.micro_batches
    last = stage_count_bound(t)
    steady = m - 1 - forward_share(t) * (min(m, last) - 1) if t.schedule != "gpipe" else float(m - 1)
    shortest = float(np.diff(t.time, axis=1).min(axis=0).sum() + t.embedding_time.min() + t.head_time.min() - t.shared_time.max())
    z_room = max(cutoff - sync_floor(t) - shortest, 0.0)   # Z of a plan below the cut-off
    positions = max(1, min(last, m)) if t.schedule != "gpipe" else 1
    share = forward_share(t) if t.schedule != "gpipe" else 0.0
    spent = [m - 1 - share * (k - 1) for k in range(1, positions + 1)]                                                       # z_k >= spent x_k
    limits = np.stack([np.minimum(most_layers(t, k, cutoff - sync_floor(t)), _layers_in(t, z_room / w if w > 0 else np.inf))
                       for k, w in enumerate(spent, 1)])                                                                     # [positions, K]
    per_gpu = np.maximum.accumulate(limits[::-1], axis=0)[::-1] / t.gpus
    by_group = np.stack([np.where(r.members[t.set_index], row[:, None], 0.0).max(axis=0) for row in per_gpu])                # [positions, G]
    prices = _prices(t, scales)
    members = np.where(r.members[None], prices[:, None, :], np.inf).min(axis=2)                                             # [J, sets]
    values = np.stack([_priced(t, members[j][t.set_index] * t.gpus, limits) for j in range(len(prices))]) if scales else layer_floor(t)[None, None]
    # a used GPU of set S came from some group of S: what it gives back is at least the least price, so the bound is never overstated
    return CostToGo(values=values, left=prices @ r.group_gpus, used_price=members, z_floor=_z_floor(t, steady), limit=limits,
                    rate=np.stack([np.where(r.members, row[None], np.inf).min(axis=1) for row in by_group]), total=by_group @ r.group_gpus,
                    layers=t.layers, capacity=left_within(t, cutoff) if scales else None)


def _z_floor(t: Tables, steady: float) -> float:
    """Z is at least `steady` times the mean load of a perfectly balanced plan (steady as in bounds.quick_bound)."""
    if steady <= 0:
        return 0.0
    per_gpu = np.diff(t.time, axis=1) * t.gpus[:, None]    # [K, L] GPU-seconds per layer
    return steady * float(per_gpu.min(axis=0).sum()) / float(t.resources.group_gpus.sum()) * (1 - SLACK)


def _layers_in(t: Tables, seconds: float) -> Ints:
    per_layer = np.diff(t.time, axis=1).min(axis=1)
    most: Ints = np.clip(np.floor(seconds / np.maximum(per_layer, 1e-300) * (1 + SLACK) + SLACK), 0, t.layers).astype(np.int64)
    return most


def _prices(t: Tables, scales: tuple[float, ...]) -> Floats:
    """[J, G] a few price vectors: none, and multiples of what a GPU of each group saves at the balanced load."""
    r = t.resources
    per_gpu = np.diff(t.time, axis=1).mean(axis=1) * t.gpus
    speed = np.array([1.0 / per_gpu[r.members[t.set_index, g]].min() if r.members[t.set_index, g].any() else 0.0 for g in range(len(r.group_gpus))])
    base = speed / max(float(speed @ r.group_gpus), 1e-300)
    stage = float(np.diff(t.time, axis=1).min(axis=0).sum())
    return np.vstack([base * stage * scale for scale in scales or (0.0,)])


def _priced(t: Tables, fee: Floats, limits: Ints) -> Floats:
    """V_λ [positions, L + 1]: V[k, l] = min over kinds u and counts n <= limits[k, u] of x_u(l, n) + fee_u + V[k + 1, l + n].

    The first stage takes the embedding.
    """
    layers, positions = t.layers, len(limits)
    placed, count = np.meshgrid(np.arange(layers), np.arange(1, layers + 1), indexing="ij")
    upto = np.minimum(placed + count, layers)
    x = t.time[:, upto] - t.time[:, placed] + fee[:, None, None] + np.where(upto == layers, t.embedding_time[:, None, None], 0.0)     # [K, L, n]
    x[:, placed + count > layers] = np.inf
    reach = np.maximum.accumulate(limits[::-1], axis=0)[::-1]
    cheapest = np.stack([np.where(count[None, 0] <= reach[k][:, None], 0.0, np.inf) for k in range(positions)])   # [positions, K, n]
    value = np.full((positions, layers + 1), np.inf)
    value[:, layers] = 0.0
    stationary = (x + cheapest[-1][:, None, :]).min(axis=0)                                                                           # [L, n]
    for start in range(layers - 1, -1, -1):
        value[-1, start] = (stationary[start, :layers - start] + value[-1, start + 1:]).min()
    for k in range(positions - 2, -1, -1):
        step = (x + cheapest[k][:, None, :]).min(axis=0)
        value[k, :layers] = (step + value[k + 1][upto]).min(axis=1)
    return np.where(np.isfinite(value), value, 1e300)
