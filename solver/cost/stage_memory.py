"""Memory of every stage of a layout, and what it says about the layout's risk."""
from collections.abc import Sequence

from solver.cost.memory_fixes import fix_for, states_gib
from solver.cost.stages import StageCosts, stages
from solver.domain.estimate import Memory, Reason, Risk, StageMemory
from solver.domain.layout import Layout
from solver.domain.problem import Problem
from solver.simulate.orders import in_flight
from solver.units import gib_from_bytes

PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


def stage_memory(stage: StageCosts, held: float) -> StageMemory:
    """GiB on one GPU of a stage: states once, activations times the micro-batches in flight at its position (`held`), logits on the last stage.

    Logits and the buffers of running layers are not held at once where the framework frees the former first: the last stage's buffers are then what
    layers need beyond the bytes of the logits.
    """
    weights, gradients, optimizer = stage.states_gib
    activations = gib_from_bytes(held * stage.activation_bytes)
    return StageMemory(capacity_gib=stage.capacity_gib, weights_gib=weights, gradients_gib=gradients, optimizer_gib=optimizer,
                       activations_gib=activations, logits_gib=stage.logits_gib, buffers_gib=stage.buffers_gib,
                       total_gib=weights + gradients + optimizer + activations + stage.logits_gib + stage.buffers_gib)


def memory_of(problem: Problem, layout: Layout) -> Memory:
    """All stages; peak and capacity are those of the stage that comes closest to its capacity."""
    found = tuple(stage_memory(stage, in_flight(layout.schedule, i, layout.pp, layout.micro_batches, layout.virtual_stages))
                  for i, stage in enumerate(stages(problem, layout)))
    worst = fullest(found)
    return Memory(peak_gib=worst.total_gib, capacity_gib=worst.capacity_gib, stages=found)


def fullest(stages: Sequence[StageMemory]) -> StageMemory:
    """The stage that comes closest to its capacity."""
    return max(stages, key=_fill)


def _fill(stage: StageMemory) -> float:
    return stage.total_gib / stage.capacity_gib if stage.capacity_gib > 0.0 else float("inf")


def risk_of(problem: Problem, memory: Memory) -> Risk:
    """safe: peak <= (1 - margin) capacity in every stage; risky: <= capacity; over: beyond, in any stage."""
    if any(s.total_gib > s.capacity_gib for s in memory.stages):
        return "over"
    if any(s.total_gib > (1.0 - problem.memory_margin) * s.capacity_gib for s in memory.stages):
        return "risky"
    return "safe"


def memory_reasons(problem: Problem, layout: Layout, memory: Memory) -> tuple[Reason, ...]:
    """One reason per stage that is over, naming what binds, by how much the stage is over, and what would make that smaller."""
    reasons = []
    for i, s in enumerate(memory.stages):
        if s.total_gib > s.capacity_gib:
            term = max(PARTS, key=lambda part: getattr(s, f"{part}_gib"))
            over, alone = s.total_gib - s.capacity_gib, f"{term} alone take {getattr(s, f'{term}_gib'):.2f} GiB"
            if states_gib(s) > s.capacity_gib:
                alone = f"weights, gradients and optimizer alone take {states_gib(s):.2f} GiB"
            reasons.append(Reason(code="memory.over", stage=i, fix=fix_for(problem, layout, memory, i),
                                  message=f"stage {i} needs {s.total_gib:.2f} GiB per GPU and has {s.capacity_gib:.2f} GiB: "
                                          f"{over:.2f} GiB over; {alone}"))
    return tuple(reasons)
