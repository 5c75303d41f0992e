"""Exact times of a schedule over unequal stages: the recurrence over (stage, instruction), nothing approximated.

An instruction starts when its stage is free and its input is there: F of a chunk needs F of the same micro-batch in the virtual stage before,
B needs B in the virtual stage behind (at the last virtual stage, its own F). Transfers are part of the durations (see solver.cost.pipeline).
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from solver.domain.degrees import ScheduleName
from solver.simulate.orders import ORDERS, Instruction, Kind
from solver.simulate.topology import topology


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


MOST_INSTRUCTIONS = 2_000_000                              # simulated one by one: about two seconds
Chunks = Sequence[Sequence[ChunkTime]]                     # [stage][virtual stage]


def makespan(schedule: ScheduleName, chunks: Chunks, micro_batches: int) -> float:
    """Seconds from the first forward to the last backward: exact up to MOST_INSTRUCTIONS, beyond that the longest path known in closed form."""
    if 2 * micro_batches * len(chunks) * len(chunks[0]) > MOST_INSTRUCTIONS:
        return long_run(schedule, chunks, micro_batches)
    return max(stage_ends(schedule, chunks, micro_batches))


def long_run(schedule: ScheduleName, chunks: Chunks, micro_batches: int) -> float:
    """Seconds by the paths that dominate with many micro-batches; a lower bound, and exact for nearly balanced stages without virtual ones.

    GPipe: S + (m - 1) (max F + max B). Otherwise, with x_k counted from the last stage and D_k behind it: S + (m - k) x_k + D_k, and with virtual
    stages m x_k + the first chunks before it.
    """
    m, stages = micro_batches, len(chunks)
    forward, backward = [sum(c.forward_s for c in row) for row in chunks], [sum(c.backward_s for c in row) for row in chunks]
    times = [f + b for f, b in zip(forward, backward, strict=True)]
    if schedule == "gpipe":
        return sum(times) + (m - 1) * (max(forward) + max(backward))
    fill = [row[0].forward_s + row[0].backward_s for row in chunks]
    longest = max(m * x + sum(fill[:i]) for i, x in enumerate(times))
    if len(chunks[0]) > 1:
        return longest
    behind = [sum(times[i + 1:]) for i in range(stages)]
    return max(longest, *(sum(times) + max(m - stages + i, 0) * x + behind[i] for i, x in enumerate(times)))


def stage_ends(schedule: ScheduleName, chunks: Chunks, micro_batches: int) -> list[float]:
    """Seconds at which each stage finishes its last instruction."""
    order = topology(schedule, len(chunks), micro_batches, len(chunks[0]))
    seconds = [s for stage in chunks for c in stage for s in (c.forward_s, c.backward_s)]
    free: list[float] = [0.0] * len(chunks)
    ends: list[float] = []
    done = ends.append
    for stage, duration, waits_for in zip(order.stage, order.duration, order.waits_for, strict=True):
        now = free[stage]
        if waits_for >= 0 and ends[waits_for] > now:
            now = ends[waits_for]
        free[stage] = now = now + seconds[duration]
        done(now)
    return free


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
