"""The measuring programs measure: figures of runs whose prediction is known."""
import json
from pathlib import Path

import pytest

from benchmarks.__main__ import timed
from benchmarks.accuracy import compare, report
from benchmarks.examples import examples

BODY = {"model": {"preset": "llama-3.1-8b"}, "cluster": {"node_groups": [{"name": "a", "gpu": "H100-SXM5-80GB", "nodes": 1}]},
        "workload": {"kind": "training", "seq_len": 4096, "global_batch_size": 32}, "strategy": {"tp": 8}}


def test_errors_are_predicted_over_measured_less_one() -> None:
    first = compare(json.dumps(BODY | {"measured": {"step_time_s": 1.0, "peak_memory_gib": 1.0}}), "a")
    second = compare(json.dumps(BODY | {"measured": {"step_time_s": 2.0}, "id": "b"}), "line 2")
    assert first.step_time_error is not None and second.step_time_error is not None
    assert (first.step_time_error + 1) == pytest.approx(2 * (second.step_time_error + 1))
    assert (first.name, second.name, second.memory_error) == ("a", "b", None)
    text = "\n".join(report([first, second], ["line 3: bad"]))
    assert "| step time | 2 |" in text and "| peak memory | 1 |" in text and "Refused: 1" in text


def test_every_example_has_a_layout_to_price() -> None:
    found = list(examples())
    assert {e.name for e in found} == {p.stem for p in (Path(__file__).parents[1] / "examples").glob("*.json")}
    for example in found:
        strategy = example.strategy()
        assert strategy.world_size == example.problem.cluster.gpus


def test_timings_are_of_calls() -> None:
    calls: list[int] = []
    took = timed(lambda: calls.append(1), 0.01)
    assert len(calls) >= 2 and 0 <= took.median_s <= took.p95_s
