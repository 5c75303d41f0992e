"""The measuring program measures."""
from pathlib import Path

from benchmarks.__main__ import timed
from benchmarks.examples import examples


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
