"""Schedules as instruction lists: what each stage runs, in which order, and how many activations it then holds.

A schedule is a function (stage, stages, micro_batches, virtual_stages) -> instructions of that stage. Stages and chunks count from 0, the first stage
holding the embedding. Sources: GPipe (arXiv 1811.06965), 1F1B with flush (PipeDream-Flush, arXiv 2006.09503), interleaved 1F1B (arXiv 2104.04473).
"""
from collections.abc import Callable
from typing import Literal, NamedTuple

from solver.domain.degrees import ScheduleName

Kind = Literal["F", "B"]


class Instruction(NamedTuple):
    """Forward (F) or backward (B) of one micro-batch through one chunk (virtual stage) of a stage."""

    kind: Kind
    micro_batch: int
    chunk: int


Order = Callable[[int, int, int, int], list[Instruction]]


def gpipe(stage: int, stages: int, micro_batches: int, virtual_stages: int) -> list[Instruction]:
    """All forwards, then all backwards in reverse."""
    del stage, stages, virtual_stages
    forward = [Instruction("F", i, 0) for i in range(micro_batches)]
    return forward + [Instruction("B", i, 0) for i in reversed(range(micro_batches))]


def one_f_one_b(stage: int, stages: int, micro_batches: int, virtual_stages: int) -> list[Instruction]:
    """stages - stage - 1 forwards to warm up, then one forward and one backward in turn, then the remaining backwards."""
    del virtual_stages
    forwards = [Instruction("F", i, 0) for i in range(micro_batches)]
    backwards = [Instruction("B", i, 0) for i in range(micro_batches)]
    return _interlace(forwards, backwards, min(micro_batches, stages - stage - 1))


def interleaved(stage: int, stages: int, micro_batches: int, virtual_stages: int) -> list[Instruction]:
    """Micro-batches in groups of `stages`, each group through all chunks in turn.

    Warm-up: 2 (stages - stage - 1) + (virtual_stages - 1) stages chunks.
    """
    forwards, backwards = [], []
    for first in range(0, micro_batches, stages):
        group = range(first, min(first + stages, micro_batches))
        for chunk in range(virtual_stages):
            forwards += [Instruction("F", i, chunk) for i in group]
            backwards += [Instruction("B", i, virtual_stages - 1 - chunk) for i in group]
    warm_up = 2 * (stages - stage - 1) + (virtual_stages - 1) * stages
    return _interlace(forwards, backwards, min(len(forwards), warm_up))


def _interlace(forwards: list[Instruction], backwards: list[Instruction], warm_up: int) -> list[Instruction]:
    order = forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        order += (forward, backward)
    return order + backwards[len(forwards) - warm_up:]


ORDERS: dict[ScheduleName, Order] = {"gpipe": gpipe, "1f1b": one_f_one_b, "interleaved": interleaved}


def in_flight(schedule: ScheduleName, stage: int, stages: int, micro_batches: int, virtual_stages: int) -> float:
    """Peak activations that a stage holds, in units of one micro-batch through all of the stage's layers.

    Exact for the schedules of ORDERS; for the zero-bubble family the figures of its papers (arXiv 2401.10241, 2405.15362), where a stage's share
    is counted from its position as in 1F1B. Never more than `micro_batches`.
    """
    m, p, behind = micro_batches, stages, stages - stage
    if schedule == "gpipe":
        return float(m)
    if schedule in ("1f1b", "zb-h1"):
        return float(min(m, behind))
    if schedule == "interleaved":
        chunks = min(m * virtual_stages, (virtual_stages - 1) * p + 2 * (behind - 1) + 1)
        return chunks / virtual_stages
    if schedule == "zb-h2":
        return float(min(m, 2 * behind - 1))
    if schedule == "v-half":
        return float(min(m, p / 2 + 1))
    if schedule == "v-min":
        return float(min(m, p / 3 + 1))
    return float(min(m, p))
