"""The same recurrence as solver.simulate.timeline for many plans at once: one NumPy operation per instruction, over all plans."""
import numpy as np
from numpy.typing import NDArray

from solver.domain.degrees import ScheduleName
from solver.simulate.timeline import MOST_INSTRUCTIONS, ChunkTime, long_run
from solver.simulate.topology import topology

Floats = NDArray[np.float64]


def makespans(schedule: ScheduleName, forward_s: Floats, backward_s: Floats, micro_batches: int) -> Floats:
    """Seconds per plan; forward_s, backward_s are [plans, stages, virtual stages]."""
    plans, stages, virtual = forward_s.shape
    if 2 * micro_batches * stages * virtual > MOST_INSTRUCTIONS:
        return np.array([long_run(schedule, [[ChunkTime(forward_s=float(f), backward_s=float(b)) for f, b in zip(*row, strict=True)]
                                             for row in zip(forward_s[i], backward_s[i], strict=True)], micro_batches) for i in range(plans)])
    order = topology(schedule, stages, micro_batches, virtual)
    seconds = np.stack([forward_s, backward_s], axis=3).reshape(plans, -1).T.copy()      # [stage, virtual stage, pass; plans]
    free = np.zeros((stages, plans))
    ends: list[Floats] = []
    for stage, duration, waits_for in zip(order.stage, order.duration, order.waits_for, strict=True):
        now = free[stage]
        if waits_for >= 0:
            now = np.maximum(now, ends[waits_for])
            ends[waits_for] = free[stage]                  # nothing else waits for it: let go of the memory
        now = now + seconds[duration]
        free[stage] = now
        ends.append(now)
    return np.asarray(free.max(axis=0))
