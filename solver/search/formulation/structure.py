"""A pipeline: active positions are a prefix from the end, each with one kind; every layer once, in order; no empty stage."""
from typing import Any

from solver.search.formulation.variables import Variables


def add(model: Any, v: Variables) -> None:
    """Σ_u chosen[k][u] is 1 for active positions; layers[k] are what lies between placed[k - 1] and placed[k]."""
    t = v.tables
    for k in range(v.positions):
        active, behind = sum(v.chosen[k]), sum(v.chosen[k + 1]) if k + 1 < v.positions else 0
        model.add(active <= 1)
        model.add(behind <= active)
        model.add(sum(v.first[k]) == active - behind)
        for u in range(t.num_kinds):
            model.add(v.first[k][u] <= v.chosen[k][u])
            held = sum(v.layers[k][u])
            model.add(held <= t.layers * v.chosen[k][u])
            model.add(held >= v.chosen[k][u])
    model.add(sum(v.chosen[0]) == 1)
    model.add(v.placed[-1] == t.layers)
    single = len(v.columns.upto) == 1
    before: list[Any] = [0] * len(v.columns.upto)
    for k in range(v.positions):
        model.add(v.placed[k] == (v.placed[k - 1] if k else 0) + sum(n for row in v.layers[k] for n in row))
        if single:
            continue
        for c, upto in enumerate(v.columns.upto):
            count = model.new_int_var(0, int(upto[-1]), f"upto_{k}_{c}")
            model.add_element(v.placed[k], [int(n) for n in upto], count)
            model.add(sum(v.layers[k][u][c] for u in range(t.num_kinds)) == count - before[c])
            before[c] = count
