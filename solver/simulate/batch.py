"""Spans of many plans at once, digit for digit those of solver.simulate.timeline.makespan."""
import numpy as np
from numpy.typing import NDArray

from solver.domain.degrees import ScheduleName
from solver.simulate.closed import CLOSED
from solver.simulate.timeline import ChunkTime, long_run, makespan
from solver.simulate.waves import waves_s

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def makespans(schedule: ScheduleName, forward_s: Floats, backward_s: Floats, micro_batches: int | Ints) -> Floats:
    """Seconds per plan; forward_s, backward_s are [plans, stages, virtual stages]. Micro-batches: of all plans, or of each."""
    plans, stages, virtual = forward_s.shape
    counts = np.broadcast_to(np.asarray(micro_batches, dtype=np.int64), (plans,))
    if virtual == 1 and schedule in CLOSED:
        return _by_count(schedule, forward_s[:, :, 0], backward_s[:, :, 0], counts)
    found = np.full(plans, np.nan)
    whole = counts % stages == 0
    if schedule == "interleaved" and whole.any():
        found[whole] = waves_s(forward_s[whole], backward_s[whole], counts[whole] // stages)
    for i in np.flatnonzero(np.isnan(found)).tolist():
        chunks = [[ChunkTime(forward_s=f, backward_s=b) for f, b in zip(*row, strict=True)]
                  for row in zip(forward_s[i].tolist(), backward_s[i].tolist(), strict=True)]
        found[i] = long_run(chunks, int(counts[i])) if whole[i] and schedule == "interleaved" else makespan(schedule, chunks, int(counts[i]))
    return found


def _by_count(schedule: ScheduleName, forward_s: Floats, backward_s: Floats, counts: Ints) -> Floats:
    found = np.empty(len(counts))
    for count in np.unique(counts).tolist():
        rows = counts == count
        found[rows] = CLOSED[schedule](list(forward_s[rows].T), list(backward_s[rows].T), count, np.maximum)
    return found
