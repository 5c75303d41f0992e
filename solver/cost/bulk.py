"""Costs of many units at once, as arrays: the formulas of `units`, given columns in place of numbers.

Units that agree in their node groups, framework and switches make one call; all else varies inside it. Where a request brings profiles, every unit is
priced alone. Digits agree with `units` but for the last ones of powers.
"""
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from solver.cost.alike import Names
from solver.cost.setting import setting
from solver.cost.unit import LayerCosts, PartCost, UnitCosts, UnitSpec
from solver.cost.units import costs_under, layer_costs, layer_costs_under, unit_costs
from solver.domain.problem import Problem

Costs = TypeVar("Costs")
Floats = NDArray[np.float64]
FORWARD, BACKWARD, WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATION = range(6)     # of a part: seconds per micro-batch, bytes
EMBEDDING, HEAD, SHARED_ENDS = range(-3, 0)                # of `UnitTable.parts`, behind the layer classes
LOGITS, BUFFERS, HEAD_BUFFERS, CAPACITY = range(4)         # of `UnitTable.room`, bytes
CONSTANT, SYNC_EMBEDDING, SYNC_HEAD, SYNC_SHARED_ENDS = range(-4, 0)        # of `UnitTable.sync`, behind the layer classes
VARYING = ("tp", "cp", "ulysses", "dp", "replicas", "ep", "etp", "micro_batch_size", "micro_batches", "zero_stage", "hiding_rounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTable:
    """`LayerCosts` of N units with C layer classes, in the order of `Setting.classes`."""

    parts: Floats                                          # [N, C, 6] seconds and bytes of one layer of each class: FORWARD to ACTIVATION
    room: Floats                                           # [N, 4] LOGITS (zero) to CAPACITY

    def at(self, rows: slice) -> "LayerTable":
        """The table of some of its units."""
        return LayerTable(parts=self.parts[rows], room=self.room[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTable:
    """`UnitCosts` of N units with C layer classes, in the order of `Setting.classes`."""

    parts: Floats                                          # [N, C + 3, 6] layer classes, EMBEDDING, HEAD, SHARED_ENDS, each FORWARD to ACTIVATION
    room: Floats                                           # [N, 4] LOGITS to CAPACITY
    sync: Floats                                           # [N, C + 4] seconds per layer of each class, CONSTANT to SYNC_SHARED_ENDS

    def at(self, rows: NDArray[np.intp]) -> "UnitTable":
        """The table of some of its units."""
        return UnitTable(parts=self.parts[rows], room=self.room[rows], sync=self.sync[rows])


def units_of(problem: Problem, specs: Sequence[UnitSpec]) -> UnitTable:
    """What `units.unit_costs` gives for each of these units."""
    shared = setting(problem)
    classes = len(shared.classes)
    table = UnitTable(parts=np.empty((len(specs), classes + 3, 6)), room=np.empty((len(specs), 4)), sync=np.empty((len(specs), classes + 4)))
    for at, costs in _priced(problem, specs, lambda spec: costs_under(shared, spec), lambda spec: unit_costs(problem, spec)):
        _fill(table.parts, at, (*(costs.layers[cls] for cls in shared.classes), costs.embedding, costs.head, costs.shared_ends))
        _fill_room(table.room, at, costs, costs.logits_bytes)
        piece, = costs.sync
        seconds = (*(piece.per_layer_s[cls] for cls in shared.classes), piece.constant_s, piece.embedding_s, piece.head_s, piece.shared_ends_s)
        for i, value in enumerate(seconds):
            table.sync[at, i] = value
    return table


def layers_of(problem: Problem, specs: Sequence[UnitSpec], *, least: bool = False) -> LayerTable:
    """What `units.layer_costs` gives for each of these units."""
    shared = setting(problem)
    table = LayerTable(parts=np.empty((len(specs), len(shared.classes), 6)), room=np.empty((len(specs), 4)))
    for at, costs in _priced(problem, specs, lambda spec: layer_costs_under(shared, spec, least=least),
                             lambda spec: layer_costs(problem, spec, least=least)):
        _fill(table.parts, at, [costs.layers[cls] for cls in shared.classes])
        _fill_room(table.room, at, costs, 0.0)
    return table


def _fill(parts: Floats, at: Any, costs: Iterable[PartCost]) -> None:
    for i, part in enumerate(costs):
        for column, value in enumerate((part.forward_s, part.backward_s, part.weights_bytes, part.gradients_bytes, part.optimizer_bytes,
                                        part.activation_bytes)):
            parts[at, i, column] = value


def _fill_room(room: Floats, at: Any, costs: UnitCosts | LayerCosts, logits_bytes: float) -> None:
    for column, value in enumerate((logits_bytes, costs.buffers_bytes, costs.head_buffers_bytes, costs.capacity_bytes)):
        room[at, column] = value


def _priced(problem: Problem, specs: Sequence[UnitSpec], together: Callable[[UnitSpec], Costs],
            alone: Callable[[UnitSpec], Costs]) -> Iterator[tuple[Any, Costs]]:
    """Costs by rows: numbers of one row, or columns over several."""
    if problem.profiles is not None and not problem.profiles.empty:
        yield from ((i, alone(spec)) for i, spec in enumerate(specs))
        return
    alike: dict[object, list[int]] = defaultdict(list)
    for i, spec in enumerate(specs):
        alike[spec.groups, spec.framework, spec.sequence_parallel, spec.vocabulary_parallel_loss, spec.shard_group].append(i)
    for rows in alike.values():
        yield (rows[0], alone(specs[rows[0]])) if len(rows) == 1 else (np.array(rows), together(_columns([specs[i] for i in rows])))


def _columns(specs: list[UnitSpec]) -> UnitSpec:
    """Units as one whose fields are arrays; numbers where all agree, but for the tensor degree."""
    columns: dict[str, Any] = {}
    for name in VARYING:
        values = [getattr(spec, name) for spec in specs]
        columns[name] = np.array(values) if name == "tp" or any(value != values[0] for value in values) else values[0]
    modes = tuple(dict.fromkeys(spec.recompute for spec in specs))
    if len(modes) > 1:
        index = {mode: i for i, mode in enumerate(modes)}
        columns["recompute"] = Names(modes, np.array([index[spec.recompute] for spec in specs]))
    return replace(specs[0], **columns)
