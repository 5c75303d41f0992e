"""The same recurrence as solver.simulate.timeline for many plans at once: one NumPy operation per instruction, over all plans."""
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from solver.domain.degrees import ScheduleName
from solver.simulate.orders import ORDERS, Instruction
from solver.simulate.timeline import MOST_INSTRUCTIONS, ChunkTime, long_run

Floats = NDArray[np.float64]


def makespans(schedule: ScheduleName, forward_s: Floats, backward_s: Floats, micro_batches: int) -> Floats:
    """Seconds per plan; forward_s, backward_s are [plans, stages, virtual stages]."""
    plans, stages, virtual = forward_s.shape
    if 2 * micro_batches * stages * virtual > MOST_INSTRUCTIONS:
        return np.array([long_run(schedule, [[ChunkTime(forward_s=float(f), backward_s=float(b)) for f, b in zip(*row, strict=True)]
                                             for row in zip(forward_s[i], backward_s[i], strict=True)], micro_batches) for i in range(plans)])
    last = stages * virtual - 1
    forward = np.ascontiguousarray(forward_s.transpose(1, 2, 0))
    backward = np.ascontiguousarray(backward_s.transpose(1, 2, 0))
    free = np.zeros((stages, plans))
    done: dict[tuple[int, int], Floats] = {}
    for stage, (kind, micro_batch, chunk) in _topological(schedule, stages, micro_batches, virtual):
        node = chunk * stages + stage
        now = free[stage]
        if kind == "F":
            if node:
                now = np.maximum(now, done.pop((node - 1, micro_batch)))
            now = now + forward[stage, chunk]
            done[node, micro_batch] = now                  # for the last virtual stage, its own backward takes it
        else:
            now = np.maximum(now, done.pop((last, micro_batch)) if node == last else done.pop((~(node + 1), micro_batch)))
            now = now + backward[stage, chunk]
            if node:
                done[~node, micro_batch] = now
        free[stage] = now
    return np.asarray(free.max(axis=0))


@lru_cache(maxsize=32)
def _topological(schedule: ScheduleName, stages: int, micro_batches: int, virtual: int) -> tuple[tuple[int, Instruction], ...]:
    """All instructions, each behind what it waits for: the order depends on the counts only, so it serves every plan."""
    orders = [ORDERS[schedule](stage, stages, micro_batches, virtual) for stage in range(stages)]
    last = stages * virtual - 1
    position = [0] * stages
    finished: set[tuple[str, int, int]] = set()
    found: list[tuple[int, Instruction]] = []
    total = sum(len(o) for o in orders)
    while len(found) < total:
        before = len(found)
        for stage, order in enumerate(orders):
            while position[stage] < len(order):
                kind, micro_batch, chunk = instruction = order[position[stage]]
                node = chunk * stages + stage
                needs = ("F", node - 1, micro_batch) if kind == "F" else ("B", node + 1, micro_batch) if node < last else ("F", node, micro_batch)
                if not (kind == "F" and node == 0) and needs not in finished:
                    break
                finished.add((kind, node, micro_batch))
                found.append((stage, instruction))
                position[stage] += 1
        if len(found) == before:
            raise ValueError(f"schedule {schedule} deadlocks with {stages} stages, {virtual} virtual stages and {micro_batches} micro-batches")
    return tuple(found)
