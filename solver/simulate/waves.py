"""Interleaved schedules of many plans at once, wave by wave: all stages of all plans in one NumPy operation.

Wave u runs forward u - i of stage i, and backward u + i - w of it, w = (v - 1) p + 2 (p - 1). Then every instruction waits for its own stage's last
one and for one of the wave before: a forward for that of the stage before (stage 0: of the last stage), a backward for that of the stage behind
(last stage: of stage 0, or in the last virtual stage its own forward).
"""
import numpy as np
from numpy.typing import NDArray

from solver.simulate.rounds import FIRST_ROUNDS, TOLERANCE, compared, lengths

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def waves_s(forward_s: Floats, backward_s: Floats, rounds: Ints) -> Floats:
    """Seconds of runs of whole rounds, by plan: as solver.simulate.rounds, digit for digit; NaN where that has no answer.

    forward_s, backward_s: [plans, stages, virtual stages].
    """
    _, stages, virtual = forward_s.shape
    found, left = np.full(len(rounds), np.nan), np.arange(len(rounds))
    forward, backward = (np.ascontiguousarray(times.transpose(1, 2, 0)) for times in (forward_s, backward_s))      # plans last: a stage is a row
    for nominal in lengths(stages, virtual, int(rounds.max())) if len(rounds) else ():
        again = []
        for timed in np.unique(np.minimum(nominal, rounds[left])).tolist():
            now = left[np.minimum(nominal, rounds[left]) == timed]
            span, step, same = _timed(forward[:, :, now], backward[:, :, now], timed)
            done = same | (rounds[now] == timed)
            more = (rounds[now] - timed) * step
            found[now[done]] = np.where(rounds[now] == timed, span, span + more)[done]
            again.append(now[~done])
        left = np.concatenate(again)
        if not len(left):
            break
    return found


def _timed(forward: Floats, backward: Floats, rounds: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """(seconds, seconds of one more round, whether every further round takes as long) of runs of `rounds` rounds; [stages, virtual stages, plans]."""
    p, v, plans = forward.shape
    total, behind, rows = rounds * p * v, (v - 1) * p + 2 * (p - 1), np.arange(p)
    free = np.zeros((p, plans))
    after_forward, after_backward = np.zeros((p + 1, plans)), np.zeros((p + 1, plans))     # rows i: before stage i; rows i + 1: behind stage i
    probes: dict[int, Floats] = {}
    probed = compared(p, v, rounds) if rounds >= FIRST_ROUNDS else ()
    for wave in range(total + behind):
        first, last = max(0, wave - total + 1), min(p, wave + 1)
        if first < last:
            if first == 0:
                after_forward[0] = after_forward[p] if wave // p % v else 0.0
            chunk = (wave - rows[first:last]) // p % v
            now = np.maximum(free[first:last], after_forward[first:last]) + forward[rows[first:last], chunk]
            free[first:last] = after_forward[first + 1:last + 1] = now
        first, last = max(0, behind - wave), min(p, total + behind - wave)
        if first < last:
            if last == p:
                after_backward[p] = after_backward[0] if (wave + p - 1 - behind) // p % v else 0.0
            chunk = v - 1 - (wave + rows[first:last] - behind) // p % v
            now = np.maximum(free[first:last], after_backward[first + 1:last + 1]) + backward[rows[first:last], chunk]
            free[first:last] = after_backward[first:last] = now
        if wave in probed:
            probes[wave] = np.concatenate((after_forward[1:], after_backward[:p]))
    span = np.asarray(free.max(axis=0))
    if not probed:
        return span, span, np.zeros(plans, dtype=bool)
    early, late = probes[probed[0]], probes[probed[1]]
    step = late[0] - early[0]
    return span, step, np.asarray((np.abs(late - early - step) <= TOLERANCE * late).all(axis=0))
