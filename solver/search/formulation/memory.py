"""Memory of each stage.

Weights, gradients and optimizer of what it holds, activations of min(m, k) micro-batches at position k from the end, and what is fixed.
"""
from typing import Any

import numpy as np

from solver.search.bounds import held
from solver.search.formulation.variables import Variables

UNITS = 1 << 26                                            # of the largest capacity


def add(model: Any, v: Variables) -> None:
    """Σ layers (static + activation min(m, k)) + fixed <= capacity, per position and kind, rounded in favour of the plan."""
    t, c = v.tables, v.columns
    unit = float(t.capacity.max()) / UNITS
    if unit <= 0:
        model.add_bool_or([])
        return
    for k in range(v.positions):
        flight, last = held(t.schedule, t.micro_batches, k + 1), k == 0
        per_layer = np.floor((c.static + c.activation * flight) / unit).astype(np.int64)                     # [K, C]
        fixed = t.buffers + last * (t.head_static + t.head_activation * flight)
        embedding = t.embedding_static + t.embedding_activation * flight - last * (t.shared_static + t.shared_activation * flight)
        for u in range(t.num_kinds):
            room = int(np.ceil((t.capacity[u] - fixed[u]) / unit)) + 1
            if room < 0:
                model.add(v.chosen[k][u] == 0)
                continue
            used = sum(int(per_layer[u, i]) * n for i, n in enumerate(v.layers[k][u])) + int(np.floor(embedding[u] / unit)) * v.first[k][u]
            model.add(used <= room)
