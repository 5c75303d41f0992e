"""GPUs and money: for every union of node groups the kinds inside it use no more than it has; the price limit over all."""
from typing import Any

from solver.search.formulation.variables import Variables

CENT = 10_000


def add(model: Any, v: Variables) -> None:
    """Σ gpus over kinds inside a union <= its GPUs (Hall's condition for straddling stages)."""
    t, r = v.tables, v.tables.resources
    for union, capacity in zip(r.inside, r.capacity, strict=True):
        used = sum(int(t.gpus[u]) * v.chosen[k][u] for k in range(v.positions) for u in range(t.num_kinds) if union[t.set_index[u]])
        model.add(used <= int(capacity))
    if r.price_limit is not None:
        cost = sum(int(t.gpus[u] * r.price[t.set_index[u]] * CENT) * v.chosen[k][u] for k in range(v.positions) for u in range(t.num_kinds))
        model.add(cost <= int(r.price_limit * CENT) + 1)
