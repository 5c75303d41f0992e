"""What a partial plan still costs at least: Lagrangian prices on GPUs, and the capacity that is left.

For prices λ >= 0 per GPU and group, any completion costs at least V_λ[l] - Σ_g λ_g (N_g - used), where V_λ[l] is the least Σ (x + λ gpus) over ways to place the remaining
layers, found by a one-dimensional dynamic program that ignores how many GPUs there are. λ = 0 gives the plain floor; others know that fast GPUs are scarce.
"""
from dataclasses import dataclass

import numpy as np

from solver.search.bounds import SLACK, layer_floor, most_layers, stage_count_bound, sync_floor
from solver.search.tables import Floats, Ints, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class CostToGo:
    """Bounds for labels. `values` [J, L + 1] is V_λ from l placed layers on; `left` [J] = Σ λ_g N_g; `used_price` [J, sets] is what a used GPU gives back at most."""

    values: Floats
    left: Floats
    used_price: Floats
    z_floor: float
    rate: Floats                                           # [sets] most layers that one GPU can still hold, least over the set's groups
    total: float                                           # layers that all GPUs can hold
    layers: int

    def root(self, t: Tables) -> float:
        """Least step time of any plan: the bound of the empty label, with the cheapest head."""
        start = self.bound(np.zeros(1, np.int64), np.zeros((1, self.used_price.shape[1]), np.int64), np.zeros(1), np.zeros(1), np.zeros(1))
        return float(start[0] + t.head_time.min() + sync_floor(t)) * (1 - SLACK)

    def bound(self, placed: Ints, used: Ints, s: Floats, z: Floats, q: Floats) -> Floats:
        """Least step time of any completion of each label; infinite where the GPUs left cannot hold the layers left."""
        value = self.values[:, placed] - self.left[:, None] + self.used_price @ used.T
        value = s + np.maximum(value.max(axis=0), 0.0) + np.maximum(z, self.z_floor) + q
        room = self.total - used @ self.rate
        return np.where(room * (1 + 1e-9) + 1e-9 < self.layers - placed, np.inf, value)


def cost_to_go(t: Tables, cutoff: float) -> CostToGo:
    """Bounds on completions of plans below `cutoff` seconds."""
    r, m = t.resources, t.micro_batches
    floor = layer_floor(t)
    q0 = sync_floor(t)
    last = stage_count_bound(t)
    phi = float(np.max(np.diff(t.forward, axis=1) / np.maximum(np.diff(t.time, axis=1), 1e-300)))
    steady = m - 1 - phi * (min(m, last) - 1) if t.schedule != "gpipe" else float(m - 1)
    head = float(t.head_time.min())
    z_room = max(cutoff - q0 - floor[0] - head, 0.0)       # Z of a plan below the cut-off
    limit = np.minimum(most_layers(t, 1, cutoff - q0), _layers_in(t, z_room / steady if steady > 0 else np.inf))
    rate = limit / t.gpus                                  # [K] layers per GPU
    by_group = np.where(r.members[t.set_index], rate[:, None], 0.0).max(axis=0)              # [G]
    by_set = np.where(r.members, by_group[None], np.inf).min(axis=1)
    prices = _prices(t, steady)
    members = np.where(r.members[None], prices[:, None, :], np.inf).min(axis=2)              # [J, sets]
    values = np.vstack([floor, *(_priced(t, members[j][t.set_index] * t.gpus, limit) for j in range(len(prices)))])
    left = np.concatenate(([0.0], prices @ r.group_gpus))
    # a used GPU of set S came from some group of S: what it gives back is at least the least price, so this never overstates the bound
    used_price = np.vstack([np.zeros((1, len(r.sets))), members])
    slowest = z_floor_of(t, steady)
    return CostToGo(values=values, left=left, used_price=used_price, z_floor=slowest, rate=by_set, total=float(by_group @ r.group_gpus), layers=t.layers)


def z_floor_of(t: Tables, steady: float) -> float:
    """Z is at least `steady` times the mean load of a perfectly balanced plan (steady as in bounds.quick_bound)."""
    if steady <= 0:
        return 0.0
    r = t.resources
    per_gpu = (np.diff(t.time, axis=1) * t.gpus[:, None])                                    # [K, L] GPU-seconds per layer
    best = 0.0
    for share in (np.full(len(r.group_gpus), 1.0 / r.group_gpus.sum()),):
        least = np.where(r.members, share[None], np.inf).min(axis=1)[t.set_index]
        best = max(best, float((per_gpu * least[:, None]).min(axis=0).sum()))
    return steady * best * (1 - 1e-9)


def _layers_in(t: Tables, seconds: float) -> Ints:
    per_layer = np.diff(t.time, axis=1).min(axis=1)
    return np.clip(np.floor(seconds / np.maximum(per_layer, 1e-300) * (1 + 1e-9) + 1e-9), 0, t.layers).astype(np.int64)


def _prices(t: Tables, steady: float) -> Floats:
    """[J, G] a few price vectors: multiples of what a GPU of each group saves at the balanced load."""
    r = t.resources
    per_gpu = np.diff(t.time, axis=1).mean(axis=1) * t.gpus
    speed = np.array([1.0 / per_gpu[r.members[t.set_index, g]].min() if r.members[t.set_index, g].any() else 0.0 for g in range(len(r.group_gpus))])
    base = speed / max(float(speed @ r.group_gpus), 1e-300)
    stage = float(np.diff(t.time, axis=1).min(axis=0).sum())
    return np.vstack([base * stage * scale for scale in (0.3, 1.0, 3.0, 10.0)])


def _priced(t: Tables, fee: Floats, limit: Ints) -> Floats:
    """V_λ by layers placed: V[l] = min over kinds u and counts n of x_u(l, n) + fee_u + V[l + n], the embedding with the last of them."""
    layers = t.layers
    value = np.full(layers + 1, np.inf)
    value[layers] = 0.0
    widths = np.arange(1, layers + 1)
    for placed in range(layers - 1, -1, -1):
        most = layers - placed
        x = t.time[:, placed + 1:] - t.time[:, placed:placed + 1] + fee[:, None]
        x = np.where(widths[None, :most] <= limit[:, None], x, np.inf)
        x[:, most - 1] += t.embedding_time
        value[placed] = (x + value[None, placed + 1:]).min()
    return np.where(np.isfinite(value), value, 1e300)
