"""The least memory that any plan needs: every weight, gradient and optimizer state at least once, whatever is sharded over what."""
from dataclasses import dataclass

from solver.cost.unit import PartCost, UnitSpec
from solver.cost.units import unit_costs
from solver.search.space import Space
from solver.search.tables import TableFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFloor:
    """Bytes of all states together, and bytes that all GPUs allowed hold for allocations, the margin kept."""

    need_bytes: float
    have_bytes: float

    @property
    def excludes_all(self) -> bool:
        return self.need_bytes > self.have_bytes


def memory_floor(space: Space, factory: TableFactory) -> MemoryFloor:
    """One unsharded copy of the model's states against the sum of capacities: sharding divides the former, replicas only add to it."""
    need, have = float("inf"), 0.0
    for group in space.groups:
        unit = unit_costs(factory.problem, UnitSpec(
            groups=(group.name,), tp=1, cp=1, ulysses=1, dp=1, replicas=1, ep=1, etp=1, micro_batch_size=1, micro_batches=1, recompute="full",
            zero_stage=1, sequence_parallel=False, vocabulary_parallel_loss=True, framework=None))
        layers = sum(n * _states(unit.layers[c]) for c, n in factory.class_counts.items())
        need = min(need, layers + _states(unit.embedding) + _states(unit.head) - _states(unit.shared_ends))
        have += space.gpus[group.name] * unit.capacity_bytes * (1.0 - factory.margin)
    return MemoryFloor(need_bytes=need, have_bytes=have)


def _states(part: PartCost) -> float:
    return part.weights_bytes + part.gradients_bytes + part.optimizer_bytes
