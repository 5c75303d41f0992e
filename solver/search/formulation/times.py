"""Times: x of each stage with its edges, Z over the paths of the recurrence (solver.search.bounds), Q over the synchronisations."""
from typing import Any

import numpy as np

from solver.search.formulation.variables import Variables
from solver.search.tables import Floats


def add(model: Any, v: Variables) -> None:
    """Z >= each stage's terms, Q >= each stage's pieces; edges by the pair of kinds that meet."""
    _edges(model, v)
    t, m = v.tables, v.tables.micro_batches
    behind: Any = 0
    for k in range(v.positions):
        position, x, forward = k + 1, v.time[k], v.forward[k]
        if t.schedule == "gpipe":
            model.add(v.steady >= (m - 1) * x)
        else:
            model.add(v.steady >= (m - 1) * x - (min(m, position) - 1) * forward)
            if m >= position + 1:
                model.add(v.steady >= (m - position) * x + behind)
        behind = behind + x
        for p in range(t.sync_constant.shape[1]):
            model.add(v.sync >= _sync(v, k, p))


def _sync(v: Variables, k: int, p: int) -> Any:
    t, total = v.tables, 0
    for u in range(t.num_kinds):
        total += v.scaled(t.sync_constant[u, p] + (t.sync_head[u, p] if k == 0 else 0.0)) * v.chosen[k][u]
        ends = t.sync_embedding[u, p] - (t.shared_sync[u, p] if k == 0 else 0.0)
        total += v.scaled(ends) * v.first[k][u]
        total += sum(v.scaled(v.columns.sync[u, p, c]) * n for c, n in enumerate(v.layers[k][u]))
    return total


def _edges(model: Any, v: Variables) -> None:
    """edge[k] >= E[u, w] where kind u stands at k and w behind it; the dearer E where the boundary lies inside the decoder of an encoder-decoder."""
    t = v.tables
    _conditions(model, v, t.edge, None)
    if t.within:
        for k in range(1, v.positions):
            inside = model.new_bool_var(f"d_{k}")
            model.add(v.placed[k - 1] >= t.within).only_enforce_if(inside.negated())
            _conditions(model, v, t.edge_within, inside, k)


def _conditions(model: Any, v: Variables, edge: Floats, inside: Any, only: int | None = None) -> None:
    """Rows of E that are equal share one condition. `inside`: a literal under which they hold."""
    t = v.tables
    rows, index = np.unique(edge.T, axis=0, return_inverse=True)               # by downstream kind
    index = index.reshape(-1)
    for k in range(1, v.positions) if only is None else (only,):
        _add(model, v.edge[k] >= sum(v.scaled(float(rows[:, u].min())) * v.chosen[k][u] for u in range(t.num_kinds)), inside)
        if len(rows) == 1:
            continue
        for r, row in enumerate(rows):
            members = [w for w in range(t.num_kinds) if index[w] == r]
            here = sum(v.chosen[k - 1][w] for w in members)
            for value in np.unique(row):
                kinds = [u for u in range(t.num_kinds) if row[u] >= value]
                _add(model, v.edge[k] >= v.scaled(float(value)) * (here + sum(v.chosen[k][u] for u in kinds) - 1), inside)


def _add(model: Any, condition: Any, literal: Any) -> None:
    added = model.add(condition)
    if literal is not None:
        added.only_enforce_if(literal)
