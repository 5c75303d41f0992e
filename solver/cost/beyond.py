"""Where a layout asks measured collectives and operators for sizes and shapes beyond all that were measured.

Found by pricing its units once more with tables that note what they are asked for.
"""
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import inf

from solver.cost.machine import Machine
from solver.cost.measured_collectives import Formula, Key, Measurement
from solver.cost.operator_profiles import with_tables
from solver.cost.operators import MeasuredAttention, MeasuredGemms
from solver.cost.pipeline import unit_spec
from solver.cost.setting import Setting, memoised
from solver.cost.unit import UnitSpec
from solver.cost.units import boundary_seconds, costs_under
from solver.domain.layout import Layout
from solver.domain.profiles import CollectiveOp

SPECS_KEPT = 4096


def others_beyond(shared: Setting, layout: Layout) -> tuple[str, ...]:
    """Which measured collectives and operators a layout asks for sizes and shapes beyond all that were measured."""
    profiles = shared.problem.profiles
    if profiles is None or not (profiles.collectives or profiles.gemms or profiles.attention):
        return ()
    specs = [unit_spec(layout, stage) for stage in layout.stages]
    found = [note for spec in dict.fromkeys(specs) for note in _notes(shared.problem)(spec, None, False)]
    for j, (one, other) in enumerate(pairwise(specs)):
        found += _notes(shared.problem)(one, other, layout.edges[j].same_node)
    return tuple(dict.fromkeys(found))


def _build(shared: Setting) -> Callable[[UnitSpec, UnitSpec | None, bool], tuple[str, ...]]:
    """Notes on a unit, or on the boundary between two; remembered."""

    @lru_cache(maxsize=SPECS_KEPT)
    def notes(one: UnitSpec, other: UnitSpec | None, same_node: bool) -> tuple[str, ...]:
        noted = {(key, op): _Noted(sizes=sizes) for key, curves in (shared.collectives or {}).items() for op, sizes in curves.items()}
        collectives: dict[Key, dict[CollectiveOp, Measurement]] = {}
        for (key, op), of in noted.items():
            collectives.setdefault(key, {})[op] = of
        shapes: dict[str, int] = {}
        machines = {name: _noting(m, shapes) for name, m in shared.machines.items()}
        changed = replace(shared, collectives=collectives if shared.collectives is not None else None, machines=machines)
        if other is None:
            costs_under(changed, one)
        else:
            boundary_seconds(changed, one, other, same_node)
        found = [f"{op} over {ranks} ranks of {'+'.join(groups)}: {of.words}" for ((groups, ranks), op), of in noted.items() if of.words]
        return (*found, *(text if n == 1 else f"{text}, and {n - 1} others" for text, n in shapes.items()))

    return notes


_notes = memoised(_build)


@dataclass(slots=True, kw_only=True)
class _Noted:
    """Measured sizes that remember the least and the largest message beyond them."""

    sizes: Measurement
    least: float = inf
    largest: float = 0.0

    @property
    def span(self) -> tuple[float, float]:
        return self.sizes.span

    @property
    def words(self) -> str:
        asked = [f"{size:.3g}" for size in (self.least, self.largest) if 0.0 < size < inf]
        return f"messages of {' and '.join(asked)} bytes are beyond what was measured" if asked else ""

    def as_floor(self) -> "Measurement":
        return self

    def seconds_at(self, size_bytes: float, formula: Formula) -> float:
        self._note(size_bytes)
        return self.sizes.seconds_at(size_bytes, formula)

    def line_at(self, size_bytes: float, formula: tuple[float, float]) -> tuple[float, float]:
        self._note(size_bytes)
        return self.sizes.line_at(size_bytes, formula)

    def _note(self, size_bytes: float) -> None:
        low, high = self.sizes.span
        if size_bytes < low:
            self.least = min(self.least, size_bytes)
        elif size_bytes > high:
            self.largest = max(self.largest, size_bytes)


@dataclass(slots=True)
class _NotedGemms:
    """Measured products that count the shapes beyond them, under the first of these."""

    table: MeasuredGemms
    gpu: str
    shapes: dict[str, int]
    first: str = ""

    def seconds(self, m: float, n: float, k: float, formula: Callable[[float, float, float], float]) -> float | None:
        found = self.table.seconds(m, n, k, formula)
        if found is None:
            self.first = self.first or f"products on {self.gpu}: m {m:g}, n {n:g}, k {k:g} is beyond what was measured"
            self.shapes[self.first] = self.shapes.get(self.first, 0) + 1
        return found


@dataclass(slots=True)
class _NotedAttention:
    table: MeasuredAttention
    gpu: str
    shapes: dict[str, int]

    def seconds(self, kind: tuple[int, int, int | None], seq_len: float, heads: float, formula: tuple[float, float]) -> tuple[float, float] | None:
        found = self.table.seconds(kind, seq_len, heads, formula)
        if found is None:
            text = f"attention on {self.gpu}: {heads:g} heads of {kind[0]} on {seq_len:g} tokens is beyond what was measured"
            self.shapes.setdefault(text, 1)
        return found


def _noting(machine: Machine, shapes: dict[str, int]) -> Machine:
    gpu = machine.group.device.name
    return with_tables(machine, lambda table: _NotedGemms(table, gpu, shapes), lambda table: _NotedAttention(table, gpu, shapes))
