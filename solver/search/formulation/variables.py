"""Variables of formulation A: which kind stands at each position from the end, and how many layers of each class it holds.

Integers are scaled once: seconds so that the cut-off is SCALE units, rounded down per term, so that the model is a relaxation and its optimum a
bound.
"""
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.search.tables import Floats, Tables

SCALE = 1 << 30                                            # units of the cut-off; finer than 2^34 made presolve lose optima (OR-Tools 9.15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Layers grouped by equal columns of every table: [C] columns, `upto` [C, L + 1] counts of each among the last c layers."""

    time: Floats                                           # [K, C] per layer
    forward: Floats
    static: Floats
    activation: Floats
    sync: Floats                                           # [K, P, C]
    upto: np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True, kw_only=True)
class Variables:
    """chosen[k][u], first[k][u] (u is there, and the first stage), layers[k][u][c]; edge[k] and x, forward as linear expressions in scaled units."""

    tables: Tables
    columns: Columns
    unit_s: float                                          # seconds per scaled unit
    positions: int
    chosen: list[list[Any]]
    first: list[list[Any]]
    layers: list[list[list[Any]]]
    placed: list[Any]                                      # layers in stages up to k
    edge: list[Any]
    time: list[Any]
    forward: list[Any]
    steady: Any                                            # Z
    sync: Any                                              # Q

    def scaled(self, seconds: float) -> int:
        """Rounded down: a little less than the truth, never more."""
        return int(np.floor(seconds / self.unit_s * (1 - 1e-12)))


def columns(t: Tables) -> Columns:
    """Group layers that cost the same in every kind."""
    per_layer = [np.diff(a, axis=-1) for a in (t.time, t.forward, t.static, t.activation)]
    sync = np.diff(t.sync, axis=-1)
    stacked = np.vstack([*per_layer, sync.reshape(-1, t.layers)])
    rounded = np.round(stacked / np.maximum(np.abs(stacked).max(axis=1, keepdims=True), 1e-300), 10)
    _, index = np.unique(rounded, axis=1, return_inverse=True)
    index = index.reshape(-1)
    count = int(index.max()) + 1
    least = [np.stack([a[:, index == c].min(axis=1) for c in range(count)], axis=1) for a in per_layer]
    upto = np.zeros((count, t.layers + 1), dtype=np.int64)
    for c in range(count):
        upto[c, 1:] = np.cumsum(index == c)
    return Columns(time=least[0], forward=least[1], static=least[2], activation=least[3],
                   sync=np.stack([sync[..., index == c].min(axis=-1) for c in range(count)], axis=-1), upto=upto)
