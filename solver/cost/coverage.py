"""How much of a layout's time rests on the user's own measurements, and what the question goes beyond them in."""
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import inf

from solver.cost.measured_collectives import Formula, Key, Measurement
from solver.cost.pipeline import layer_counts, sync_s, total, unit_spec
from solver.cost.setting import Setting, memoised
from solver.cost.uncovered import beyond
from solver.cost.unit import UnitSpec
from solver.cost.units import boundary_seconds, costs_under, unit_costs
from solver.domain.estimate import Confidence
from solver.domain.layout import Layout
from solver.domain.profiles import EMBEDDING, HEAD, CollectiveOp

WAYS = ("forward_s", "backward_s")
SPECS_KEPT = 4096


def with_profiles(shared: Setting, layout: Layout | None, formulas: Confidence) -> Confidence:
    """The confidence of an answer that rests on layer profiles, given that of the formulas.

    `profile` where every decoder layer is measured, inside the data; collectives alone change no basis. The error is that of measured layers and that
    of the formulas in proportion to the seconds that come from each: ends that nobody measured, edges, gradient traffic and the optimizer's step
    count as formulas.
    """
    if layout is None or (shared.measured is None and shared.collectives is None):
        return formulas
    layers, collectives = beyond(shared, layout), collectives_beyond(shared, layout)
    if layers or shared.measured is None:
        return replace(formulas, outside_data=layers + collectives)
    share = _measured_share(shared, layout)
    error = share * shared.constants.confidence.profile_error + (1.0 - share) * formulas.expected_error
    return Confidence(basis="profile", expected_error=min(error, formulas.expected_error), outside_data=collectives)


def _measured_share(shared: Setting, layout: Layout) -> float:
    """Of the seconds of all stages, those of layers and ends that are measured."""
    assert shared.measured is not None                     # the caller has looked
    measured = everything = 0.0
    for j, stage in enumerate(layout.stages):
        spec, first, last = unit_spec(layout, stage), j == 0, j == layout.pp - 1
        costs, counts = unit_costs(shared.problem, spec), layer_counts(shared.problem, stage.layers)
        busy = sum(total(costs, counts, first, last, way) for way in WAYS)
        ends = sum(getattr(part, way) for name, part, here in ((EMBEDDING, costs.embedding, first), (HEAD, costs.head, last))
                   if here and name not in shared.measured.parts for way in WAYS)
        measured += layout.micro_batches * (busy - ends)
        everything += layout.micro_batches * busy + max(sync_s(piece, counts, first, last) for piece in costs.sync)
    return measured / everything if everything > 0.0 else 0.0


def collectives_beyond(shared: Setting, layout: Layout) -> tuple[str, ...]:
    """Which measured collectives a layout asks for messages that are smaller or larger than all that were measured."""
    if shared.collectives is None:
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
        changed = replace(shared, collectives=collectives)
        if other is None:
            costs_under(changed, one)
        else:
            boundary_seconds(changed, one, other, same_node)
        return tuple(f"{op} over {ranks} ranks of {'+'.join(groups)}: {of.words}" for ((groups, ranks), op), of in noted.items() if of.words)

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
