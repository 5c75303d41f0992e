"""Memory of every stage of a layout, and what it says about the layout's risk."""
from solver.cost.memory_fixes import fix_for, states_gib
from solver.cost.pipeline import layer_counts, total, unit_spec
from solver.cost.units import unit_costs
from solver.domain.estimate import Memory, Reason, Risk, StageMemory
from solver.domain.layout import Layout
from solver.domain.problem import Problem
from solver.simulate.orders import in_flight
from solver.units import gib_from_bytes

PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


def stage_memory(problem: Problem, layout: Layout, index: int) -> StageMemory:
    """GiB on one GPU of a stage: states once, activations times the micro-batches in flight at its position, logits on the last stage.

    Logits and the buffers of running layers are not held at once where the framework frees the former first: the last stage's buffers are then what
    layers need beyond the bytes of the logits.
    """
    stage = layout.stages[index]
    costs = unit_costs(problem, unit_spec(layout, stage))
    counts = layer_counts(problem, stage.layers)
    first, last = index == 0, index == layout.pp - 1
    held = in_flight(layout.schedule, index, layout.pp, layout.micro_batches, layout.virtual_stages)
    sizes = [gib_from_bytes(size) for size in (
        max(0.0, total(costs, counts, first, last, "weights_bytes")), max(0.0, total(costs, counts, first, last, "gradients_bytes")),
        max(0.0, total(costs, counts, first, last, "optimizer_bytes")), held * total(costs, counts, first, last, "activation_bytes"),
        costs.logits_bytes if last else 0.0, costs.head_buffers_bytes if last else costs.buffers_bytes)]
    return StageMemory(capacity_gib=gib_from_bytes(costs.capacity_bytes), weights_gib=sizes[0], gradients_gib=sizes[1], optimizer_gib=sizes[2],
                       activations_gib=sizes[3], logits_gib=sizes[4], buffers_gib=sizes[5], total_gib=sum(sizes))


def memory_of(problem: Problem, layout: Layout) -> Memory:
    """All stages; peak and capacity are those of the stage that comes closest to its capacity."""
    stages = tuple(stage_memory(problem, layout, i) for i in range(layout.pp))
    worst = max(stages, key=_fill)
    return Memory(peak_gib=worst.total_gib, capacity_gib=worst.capacity_gib, stages=stages)


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
