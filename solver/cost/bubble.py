"""Closed forms of pipeline time: oracles for the recurrence, and the price of schedules that this version does not simulate.

F, B and W are seconds of one micro-batch on a mean stage: forward, input gradient, weight gradient (B + W is a stage's backward). p stages, m
micro-batches.
"""
from collections.abc import Sequence

from solver.domain.degrees import ScheduleName
from solver.simulate.timeline import ChunkTime

CLOSED_FORMS: tuple[ScheduleName, ...] = ("zb-h1", "zb-h2", "zb-v", "v-half", "v-min")


def bubble_s(schedule: ScheduleName, stages: int, forward_s: float, input_gradient_s: float, weight_gradient_s: float,
             virtual_stages: int = 1) -> float:
    """Idle seconds of a stage for p equal stages.

    GPipe, 1F1B (p - 1)(F + B + W); interleaved the same over v; ZB-H1 (p - 1)(F + B - W); ZB-H2 (p - 1)(F + B - 2 W) (arXiv 2401.10241, table 2);
    ZB-V half of that, as its chunks are half a stage, V-Half and V-Min about 1/2 and 2/3 of 1F1B's (arXiv 2405.15362). Wrong where W is larger than F
    or B: the form may fall below zero, which is cut off.
    """
    f, b, w = forward_s, input_gradient_s, weight_gradient_s
    per_stage = {
        "gpipe": f + b + w, "1f1b": f + b + w, "interleaved": (f + b + w) / virtual_stages, "zb-h1": f + b - w, "zb-h2": f + b - 2.0 * w,
        "zb-v": (f + b - 2.0 * w) / 2.0, "v-half": (f + b + w) / 2.0, "v-min": (f + b + w) * 2.0 / 3.0,
    }[schedule]
    return max(0.0, (stages - 1) * per_stage)


def closed_form_s(schedule: ScheduleName, chunks: Sequence[Sequence[ChunkTime]], micro_batches: int) -> float:
    """m times the largest stage, and the bubble of the mean stage. Too little where the largest stage is much above the mean."""
    p = len(chunks)
    forward = [sum(c.forward_s for c in stage) for stage in chunks]
    backward = [sum(c.backward_s for c in stage) for stage in chunks]
    weight = [sum(c.weight_gradient_s for c in stage) for stage in chunks]
    largest = max(f + b for f, b in zip(forward, backward, strict=True))
    mean_weight = sum(weight) / p
    return micro_batches * largest + bubble_s(schedule, p, sum(forward) / p, sum(backward) / p - mean_weight, mean_weight, len(chunks[0]))


def slimpipe_bubble_share(stages: int, slices: int, micro_batches: int, virtual_stages: int) -> float:
    """Bubble over busy time of SlimPipe: (p - 1) / (n m v + p - 1) of the whole (arXiv 2504.14519)."""
    return (stages - 1) / (slices * micro_batches * virtual_stages + stages - 1)
