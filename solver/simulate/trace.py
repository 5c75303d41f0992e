"""A simulated step as Chrome trace events, which Perfetto and chrome://tracing open.

Format: "Trace Event Format" (complete events, ph X; metadata, ph M); times in microseconds.
"""
from collections.abc import Iterable, Sequence
from typing import Any

from solver.simulate.timeline import Interval

MAX_EVENTS = 20_000
_NAMES = {"F": "forward", "B": "backward"}
_COLOURS = {"F": "good", "B": "bad"}                        # reserved colour names of the viewer: green, red


def shown_micro_batches(micro_batches: int, stages: int, virtual_stages: int) -> int:
    """How many micro-batches a trace may show within MAX_EVENTS: at least one, and whole groups of `stages` where they fit."""
    room = MAX_EVENTS // (2 * stages * virtual_stages)
    if micro_batches <= room:
        return micro_batches
    return room // stages * stages or max(room, 1)


def trace_events(intervals: Iterable[Interval], stage_names: Sequence[str], micro_batches: int, total: int) -> dict[str, Any]:
    """Intervals of one step as a trace: one process (the pipeline), one thread per stage.

    `micro_batches` of `total` are in `intervals`; where that is fewer, the process name says so.
    """
    cut = f", {micro_batches} of {total} micro-batches shown" if micro_batches < total else f", {total} micro-batches"
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": f"one training step{cut}"}}]
    for stage, name in enumerate(stage_names):
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": stage, "args": {"name": name}})
        events.append({"name": "thread_sort_index", "ph": "M", "pid": 0, "tid": stage, "args": {"sort_index": stage}})
    for it in intervals:
        events.append({
            "name": f"{_NAMES[it.kind]} {it.micro_batch}", "cat": _NAMES[it.kind], "ph": "X", "pid": 0, "tid": it.stage,
            "ts": round(it.start_s * 1e6, 3), "dur": round((it.end_s - it.start_s) * 1e6, 3), "cname": _COLOURS[it.kind],
            "args": {"micro_batch": it.micro_batch, "virtual_stage": it.chunk}})
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"micro_batches_shown": micro_batches, "micro_batches": total}}
