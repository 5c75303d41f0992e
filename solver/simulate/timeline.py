"""Exact times of a schedule over unequal stages: the recurrence over (stage, instruction), nothing approximated.

An instruction starts when its stage is free and its input is there: F of a chunk needs F of the same micro-batch in the virtual stage before,
B needs B in the virtual stage behind (at the last virtual stage, its own F). Transfers are part of the durations (see solver.cost.pipeline).
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from solver.domain.degrees import ScheduleName
from solver.simulate.closed import CLOSED
from solver.simulate.orders import ORDERS, Instruction, Kind
from solver.simulate.rounds import rounds_s
from solver.simulate.topology import ends_s, topology


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTime:
    """Seconds that one micro-batch takes in one chunk; weight_gradient_s is part of backward_s."""

    forward_s: float
    backward_s: float
    weight_gradient_s: float = 0.0


class Interval(NamedTuple):
    """One executed instruction."""

    stage: int
    chunk: int
    micro_batch: int
    kind: Kind
    start_s: float
    end_s: float


Chunks = Sequence[Sequence[ChunkTime]]                     # [stage][virtual stage]


def makespan(schedule: ScheduleName, chunks: Chunks, micro_batches: int) -> float:
    """Seconds from the first forward to the last backward: exact up to rounding, but for interleaved runs that are too long to be timed (`long_run`).

    GPipe and 1F1B in closed form (solver.simulate.closed), interleaved over rounds (solver.simulate.rounds). `makespans` gives the same digits.
    """
    stages, virtual = len(chunks), len(chunks[0])
    if virtual == 1 and schedule in CLOSED:
        return float(CLOSED[schedule]([row[0].forward_s for row in chunks], [row[0].backward_s for row in chunks], micro_batches, max))
    seconds = tuple(s for stage in chunks for c in stage for s in (c.forward_s, c.backward_s))
    if schedule == "interleaved" and micro_batches % stages == 0:
        found = rounds_s(seconds, stages, virtual, micro_batches // stages)
        return long_run(chunks, micro_batches) if found is None else found
    return max(ends_s(topology(schedule, stages, micro_batches, virtual), seconds, stages))


def long_run(chunks: Chunks, micro_batches: int) -> float:
    """Seconds of an interleaved run by the path of many micro-batches, m x_k behind the first chunks before stage k: a lower bound."""
    longest, fill = 0.0, 0.0
    for row in chunks:
        busy = 0.0
        for chunk in row:
            busy += chunk.forward_s + chunk.backward_s
        longest = max(longest, micro_batches * busy + fill)
        fill += row[0].forward_s + row[0].backward_s
    return longest


def intervals(schedule: ScheduleName, chunks: Chunks, micro_batches: int) -> list[Interval]:
    """Every instruction with its start and end, in order of execution per stage."""
    found: list[Interval] = []
    _run(schedule, chunks, micro_batches, found)
    return found


def _run(schedule: ScheduleName, chunks: Chunks, micro_batches: int, log: list[Interval]) -> None:
    stages, virtual = len(chunks), len(chunks[0])
    orders = [ORDERS[schedule](stage, stages, micro_batches, virtual) for stage in range(stages)]
    last = stages * virtual - 1
    forward_done = [[-1.0] * micro_batches for _ in range(last + 1)]
    backward_done = [[-1.0] * micro_batches for _ in range(last + 1)]
    duration = [[(c.forward_s, c.backward_s) for c in stage] for stage in chunks]
    free, position = [0.0] * stages, [0] * stages
    waiting = list(range(stages))
    while waiting:
        moved = False
        for stage in waiting:
            moved |= _advance(stage, stages, last, orders[stage], position, free, duration[stage], forward_done, backward_done, log)
        if not moved:
            raise ValueError(f"schedule {schedule} deadlocks with {stages} stages, {virtual} virtual stages and {micro_batches} micro-batches")
        waiting = [s for s in waiting if position[s] < len(orders[s])]


def _advance(stage: int, stages: int, last: int, order: list[Instruction], position: list[int], free: list[float],
             duration: list[tuple[float, float]], forward_done: list[list[float]], backward_done: list[list[float]],
             log: list[Interval]) -> bool:
    """Run the stage's instructions as far as their inputs are known; True if any ran."""
    start_at, at, now = position[stage], position[stage], free[stage]
    while at < len(order):
        kind, micro_batch, chunk = order[at]
        node = chunk * stages + stage
        if kind == "F":
            ready = forward_done[node - 1][micro_batch] if node else 0.0
        else:
            ready = backward_done[node + 1][micro_batch] if node < last else forward_done[node][micro_batch]
        if ready < 0.0:
            break
        begin = ready if ready > now else now
        now = begin + duration[chunk][kind == "B"]
        (forward_done if kind == "F" else backward_done)[node][micro_batch] = now
        log.append(Interval(stage, chunk, micro_batch, kind, begin, now))
        at += 1
    position[stage], free[stage] = at, now
    return at > start_at
