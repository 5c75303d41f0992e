"""The least memory that any plan needs: every weight, gradient and optimizer state at least once, whatever is sharded over what."""
from dataclasses import dataclass, replace

import numpy as np

from solver.cost.parts import embedding_holding, head_holding, holding_of
from solver.cost.setting import setting
from solver.cost.unit import PartCost, UnitSpec
from solver.cost.units import unit_costs
from solver.domain.problem import Problem
from solver.domain.profiles import EMBEDDING, HEAD
from solver.search.space import Space
from solver.search.tables import TableFactory

ONE_GPU = UnitSpec(groups=(), tp=1, cp=1, ulysses=1, dp=1, replicas=1, ep=1, etp=1, micro_batch_size=1, micro_batches=1, recompute="full",
                   zero_stage=1, sequence_parallel=False, vocabulary_parallel_loss=True, framework=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFloor:
    """Bytes of all states together, and bytes that all GPUs allowed hold for allocations, the margin kept."""

    need_bytes: float
    have_bytes: float
    room_bytes: dict[str, float]                           # of one GPU, by node group

    @property
    def excludes_all(self) -> bool:
        return self.need_bytes > self.have_bytes


def memory_floor(space: Space, factory: TableFactory) -> MemoryFloor:
    """One unsharded copy of the model's states against the sum of capacities: sharding divides the former, replicas only add to it.

    Where weights are measured, the formulas' states times the least measured share of any of them.
    """
    need, room = float("inf"), dict[str, float]()
    problem = replace(factory.problem, profiles=None) if factory.problem.profiles is not None else factory.problem
    for group in space.groups:
        unit = unit_costs(problem, replace(ONE_GPU, groups=(group.name,)))
        layers = sum(n * _states(unit.layers[c]) for c, n in setting(problem).counts.items())
        need = min(need, layers + _states(unit.embedding) + _states(unit.head) - _states(unit.shared_ends))
        room[group.name] = unit.capacity_bytes * (1.0 - factory.margin)
    return MemoryFloor(need_bytes=need * _least_share(factory.problem, problem), room_bytes=room,
                       have_bytes=space.most_value(np.array([*room.values()])) if room else 0.0)


def _least_share(problem: Problem, without: Problem) -> float:
    """The least of measured weights over counted ones, at most 1. A tensor degree's formulas count no less in all than the unsharded ones."""
    shared, least = setting(without), 1.0
    for row in problem.profiles.layers if problem.profiles is not None else ():
        if row.parameter_bytes is not None:
            spec = replace(ONE_GPU, tp=row.tp)
            of = {EMBEDDING: [embedding_holding(shared, spec)], HEAD: [head_holding(shared, spec)]}.get(
                str(row.layer), [holding_of(shared, spec, cls) for cls in shared.classes])
            counted = max(h.dense + h.experts for h in of) * shared.activation_element
            least = min(least, row.parameter_bytes / counted)
    return least


def _states(part: PartCost) -> float:
    return part.weights_bytes + part.gradients_bytes + part.optimizer_bytes
