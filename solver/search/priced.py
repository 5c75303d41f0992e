"""The units that a search has priced, kept as one growing table."""
from collections.abc import Iterable

import numpy as np

from solver.cost.bulk import UnitTable, units_of
from solver.cost.unit import UnitSpec
from solver.domain.problem import Problem

ROWS_AT_FIRST = 256


class PricedUnits:
    """Costs by unit. What is asked for together is priced together, and many units at once cost little more time than one."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._row: dict[UnitSpec, int] = {}
        self._table = units_of(problem, [])

    def __len__(self) -> int:
        return len(self._row)

    def add(self, specs: Iterable[UnitSpec]) -> None:
        """Prices those of the units that are not known yet."""
        new = [spec for spec in dict.fromkeys(specs) if spec not in self._row]
        if not new:
            return
        first = len(self._row)
        self._table = _with_room(self._table, first + len(new))
        priced = units_of(self._problem, new)
        for kept, found in ((self._table.parts, priced.parts), (self._table.room, priced.room), (self._table.sync, priced.sync)):
            kept[first:first + len(new)] = found
        self._row.update((spec, first + i) for i, spec in enumerate(new))

    def of(self, specs: list[UnitSpec]) -> UnitTable:
        """The costs of these units, in their order."""
        try:
            rows = [self._row[spec] for spec in specs]
        except KeyError:
            self.add(specs)
            rows = [self._row[spec] for spec in specs]
        return self._table.at(np.array(rows, dtype=np.intp))


def _with_room(table: UnitTable, rows: int) -> UnitTable:
    """The table with as many rows or more, at least twice those of before where it has to grow."""
    have = len(table.room)
    if rows <= have:
        return table
    more = max(rows, 2 * have, ROWS_AT_FIRST) - have
    return UnitTable(**{name: np.concatenate([old, np.empty((more, *old.shape[1:]))])
                        for name, old in (("parts", table.parts), ("room", table.room), ("sync", table.sync))})
