"""The trace holds every interval, names every stage, and stays small."""
import json

import pytest

from solver.simulate.timeline import ChunkTime, intervals
from solver.simulate.trace import MAX_EVENTS, shown_micro_batches, trace_events

CHUNKS = [[ChunkTime(forward_s=0.001, backward_s=0.002)], [ChunkTime(forward_s=0.002, backward_s=0.004)]]


def test_every_interval_is_an_event_in_microseconds() -> None:
    found = intervals("1f1b", CHUNKS, 3)
    trace = json.loads(json.dumps(trace_events(found, ["first", "second"], 3, 3)))
    complete = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(complete) == 2 * 2 * 3
    first = complete[0]
    assert (first["name"], first["tid"], first["ts"], first["dur"]) == ("forward 0", 0, 0.0, 1000.0)
    assert max(e["ts"] + e["dur"] for e in complete) == pytest.approx(max(i.end_s for i in found) * 1e6)


def test_stages_are_named_and_sorted() -> None:
    events = trace_events(intervals("1f1b", CHUNKS, 1), ["first", "second"], 1, 1)["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name"] == ["first", "second"]
    assert [e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"] == [0, 1]


def test_a_cut_trace_says_so() -> None:
    trace = trace_events(intervals("1f1b", CHUNKS, 2), ["first", "second"], 2, 100)
    assert "2 of 100 micro-batches shown" in trace["traceEvents"][0]["args"]["name"]
    assert trace["otherData"] == {"micro_batches_shown": 2, "micro_batches": 100}


@pytest.mark.parametrize(("micro_batches", "stages", "virtual"), [(1, 1, 1), (64, 8, 1), (4096, 8, 4), (10_000, 3, 1), (5, 200, 50), (300, 64, 8)])
def test_traces_are_bounded(micro_batches: int, stages: int, virtual: int) -> None:
    shown = shown_micro_batches(micro_batches, stages, virtual)
    assert 1 <= shown <= micro_batches
    assert 2 * shown * stages * virtual <= MAX_EVENTS or shown == 1
    assert shown == micro_batches or shown % stages == 0 or shown < stages


@pytest.mark.parametrize("micro_batches", range(1, 9))
def test_cut_interleaved_steps_still_run(micro_batches: int) -> None:
    chunks = [[ChunkTime(forward_s=0.001, backward_s=0.002)] * 2] * 4
    assert len(intervals("interleaved", chunks, micro_batches)) == 2 * 2 * 4 * micro_batches
