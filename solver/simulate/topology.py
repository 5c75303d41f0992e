"""A schedule as one list of instructions, each behind what it waits for: depends on counts alone, so one list serves every plan of a shape."""
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from solver.domain.degrees import ScheduleName
from solver.simulate.orders import ORDERS

KEPT = 256
MOST_KEPT_INSTRUCTIONS = 50_000                            # longer lists are made anew: a few megabytes each


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """[instructions] stage; duration: 2 * (virtual stage) + (0 forward, 1 backward) within all chunks, stage by stage; waits_for: index of the
    instruction whose end it needs beside its own stage's, -1 for none."""

    stage: tuple[int, ...]
    duration: tuple[int, ...]
    waits_for: tuple[int, ...]


def topology(schedule: ScheduleName, stages: int, micro_batches: int, virtual: int) -> Topology:
    """The instructions of a schedule in an order in which they can be timed one by one; raises ValueError where a schedule deadlocks."""
    if 2 * stages * micro_batches * virtual <= MOST_KEPT_INSTRUCTIONS:
        return _kept(schedule, stages, micro_batches, virtual)
    return _made(schedule, stages, micro_batches, virtual)


def ends_s(order: Topology, seconds: Sequence[float], stages: int) -> list[float]:
    """When each instruction ends, given the seconds of every stage, virtual stage and pass."""
    free: list[float] = [0.0] * stages
    ends: list[float] = []
    done = ends.append
    for stage, duration, waits_for in zip(order.stage, order.duration, order.waits_for, strict=True):
        now = free[stage]
        if waits_for >= 0 and ends[waits_for] > now:
            now = ends[waits_for]
        free[stage] = now = now + seconds[duration]
        done(now)
    return ends


@lru_cache(maxsize=KEPT)
def _kept(schedule: ScheduleName, stages: int, micro_batches: int, virtual: int) -> Topology:
    return _made(schedule, stages, micro_batches, virtual)


def _made(schedule: ScheduleName, stages: int, micro_batches: int, virtual: int) -> Topology:
    orders = [ORDERS[schedule](stage, stages, micro_batches, virtual) for stage in range(stages)]
    last, m = stages * virtual - 1, micro_batches
    forward_at, backward_at = [[-1] * m for _ in range(last + 1)], [[-1] * m for _ in range(last + 1)]
    position = [0] * stages
    stage_of: list[int] = []
    duration: list[int] = []
    waits_for: list[int] = []
    unfinished = list(range(stages))
    while unfinished:
        before = len(stage_of)
        for stage in unfinished:
            order, at = orders[stage], position[stage]
            while at < len(order):
                kind, micro_batch, chunk = order[at]
                node = chunk * stages + stage
                if kind == "F":
                    needs = forward_at[node - 1][micro_batch] if node else -1
                    if node and needs < 0:
                        break
                    forward_at[node][micro_batch] = len(stage_of)
                else:
                    needs = backward_at[node + 1][micro_batch] if node < last else forward_at[node][micro_batch]
                    if needs < 0:
                        break
                    backward_at[node][micro_batch] = len(stage_of)
                stage_of.append(stage)
                duration.append(2 * (stage * virtual + chunk) + (kind == "B"))
                waits_for.append(needs)
                at += 1
            position[stage] = at
        if len(stage_of) == before:
            raise ValueError(f"schedule {schedule} deadlocks with {stages} stages, {virtual} virtual stages and {micro_batches} micro-batches")
        unfinished = [s for s in unfinished if position[s] < len(orders[s])]
    return Topology(stage=tuple(stage_of), duration=tuple(duration), waits_for=tuple(waits_for))
