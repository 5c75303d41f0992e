"""GPUs and budgets: for every union of node groups the kinds inside it use no more than it has; each budget over all."""
from typing import Any

import numpy as np

from solver.search.formulation.variables import Variables

UNITS = 1 << 26                                            # of a budget's limit


def add(model: Any, v: Variables) -> None:
    """Σ gpus over kinds inside a union <= its GPUs (Hall's condition for straddling stages)."""
    t, r = v.tables, v.tables.resources
    for union, capacity in zip(r.inside, r.capacity, strict=True):
        used = sum(int(t.gpus[u]) * v.chosen[k][u] for k in range(v.positions) for u in range(t.num_kinds) if union[t.set_index[u]])
        model.add(used <= int(capacity))
    for rates, limit in zip(r.rates, r.limits, strict=True):
        unit = float(limit) / UNITS if limit > 0.0 else 1.0
        taken = np.minimum(np.floor(t.gpus * rates[t.set_index] / unit), 2 * UNITS).astype(np.int64)
        model.add(sum(int(taken[u]) * v.chosen[k][u] for k in range(v.positions) for u in range(t.num_kinds)) <= int(limit / unit) + 1)
