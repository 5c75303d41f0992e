"""Interleaved schedules over rounds of p micro-batches: once every stage repeats itself, all further rounds take what one took.

A run of few rounds is timed instruction by instruction. What later instructions know of a wave (see solver.simulate.waves) is when the last forward
and backward of every stage ended. Where all of these lie the same time behind their counterparts one round earlier, every later round only adds that
time: exact up to rounding, whichever stages are slow. Where they do not yet, twice as many rounds are timed.
"""
from collections.abc import Iterator
from functools import lru_cache

from solver.simulate.topology import ends_s, topology

FIRST_ROUNDS = 3                                           # the fewest in which a whole round runs between warm-up and drain
TOLERANCE = 1e-12                                          # of a time, when two are called the same
MOST_INSTRUCTIONS = 2_000_000                              # timed one by one: about two seconds
KEPT = 4_096
SHAPES_KEPT = 256


def lengths(stages: int, virtual: int, rounds: int) -> Iterator[int]:
    """How many rounds to time, one after the other until one repeats itself or is the whole run; ends where there would be too many instructions."""
    timed = FIRST_ROUNDS
    while 2 * min(timed, rounds) * stages * stages * virtual <= MOST_INSTRUCTIONS:
        yield min(timed, rounds)
        timed *= 2


@lru_cache(maxsize=KEPT)
def rounds_s(seconds: tuple[float, ...], stages: int, virtual: int, rounds: int) -> float | None:
    """Seconds of a run, given those of every stage, virtual stage and pass; None where it is too long to be timed and does not repeat itself."""
    for timed in lengths(stages, virtual, rounds):
        ends = ends_s(topology("interleaved", stages, timed * stages, virtual), seconds, stages)
        if timed == rounds:
            return max(ends)
        early, late = (_at(stages, virtual, timed, wave) for wave in compared(stages, virtual, timed))
        step = ends[late[0]] - ends[early[0]]
        if all(abs(ends[b] - ends[a] - step) <= TOLERANCE * ends[b] for a, b in zip(early, late, strict=True)):
            return max(ends) + (rounds - timed) * step
    return None


def compared(stages: int, virtual: int, rounds: int) -> tuple[int, int]:
    """The last wave with a forward of every stage, and the one a round before."""
    last = rounds * stages * virtual - 1
    return last - stages * virtual, last


@lru_cache(maxsize=SHAPES_KEPT)
def _at(stages: int, virtual: int, rounds: int, wave: int) -> tuple[int, ...]:
    """Indices of a wave's forward and backward of every stage in the topology."""
    order = topology("interleaved", stages, rounds * stages, virtual)
    instructions: list[list[int]] = [[] for _ in range(stages)]
    for i, stage in enumerate(order.stage):
        instructions[stage].append(i)
    found = []
    for stage in range(stages):
        warm_up = 2 * (stages - 1 - stage) + (virtual - 1) * stages
        nth = wave - stage - warm_up                       # forward and backward in turn since the warm-up
        found += instructions[stage][warm_up + 2 * nth:warm_up + 2 * nth + 2]
    return tuple(found)
