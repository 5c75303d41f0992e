"""Interleaved schedules over rounds of p micro-batches: once every stage repeats itself, further rounds need no timing.

A run of three rounds is timed instruction by instruction. What later instructions know of it at a wave (see solver.simulate.drift) is its state:
when the last forward and backward of every stage ended. Where all of these lie the same time behind their counterparts one round earlier, every later
round only adds that time: exact up to rounding. Where they do not, some stage still works off what it is ahead: solver.simulate.drift.
"""
from functools import lru_cache

from solver.simulate.drift import drifting_s
from solver.simulate.topology import ends_s, topology

TIMED = 3                                                  # the fewest rounds in which a whole one runs between warm-up and drain
TOLERANCE = 1e-12                                          # of a time, when two are called the same
KEPT = 4_096
SHAPES_KEPT = 256


@lru_cache(maxsize=KEPT)
def rounds_s(seconds: tuple[float, ...], stages: int, virtual: int, rounds: int) -> float | None:
    """Seconds of a run, given those of every stage, virtual stage and pass; None where it drifts for too long to be timed."""
    timed = min(rounds, TIMED)
    ends = ends_s(topology("interleaved", stages, timed * stages, virtual), seconds, stages)
    if timed == rounds:
        return max(ends)
    early, late = _states(stages, virtual)
    step = ends[late[0]] - ends[early[0]]
    if all(abs(ends[b] - ends[a] - step) <= TOLERANCE * ends[b] for a, b in zip(early, late, strict=True)):
        return max(ends) + (rounds - timed) * step
    return drifting_s(seconds, stages, virtual, rounds)


@lru_cache(maxsize=SHAPES_KEPT)
def _states(stages: int, virtual: int) -> tuple[list[int], list[int]]:
    """Instructions of the last wave of `TIMED` rounds with a forward of every stage, and of the wave one round before."""
    order = topology("interleaved", stages, TIMED * stages, virtual)
    instructions: list[list[int]] = [[] for _ in range(stages)]
    for i, stage in enumerate(order.stage):
        instructions[stage].append(i)
    last, early, late = TIMED * stages * virtual - 1, [], []
    for stage, own in enumerate(instructions):
        warm_up = 2 * (stages - 1 - stage) + (virtual - 1) * stages
        nth = warm_up + 2 * (last - stage - warm_up)       # forward and backward in turn since the warm-up
        late += own[nth:nth + 2]
        early += own[nth - 2 * stages * virtual:nth + 2 - 2 * stages * virtual]
    return early, late
