"""Steps of very many micro-batches: the closed form against the recurrence where both can be had."""
import numpy as np
import pytest

from solver.simulate.timeline import ChunkTime, long_run, makespan


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_the_closed_form_is_the_recurrence_for_nearly_balanced_stages(schedule: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(50):
        stages, m = int(rng.integers(1, 6)), int(rng.integers(40, 80))
        chunks = [[ChunkTime(forward_s=float(x) / 3, backward_s=float(x) * 2 / 3)] for x in rng.uniform(1.0, 1.1, stages)]
        assert long_run(schedule, chunks, m) == pytest.approx(makespan(schedule, chunks, m), rel=1e-12)


def test_with_virtual_stages_it_is_a_bound() -> None:
    rng = np.random.default_rng(8)
    for _ in range(30):
        stages, virtual = int(rng.integers(2, 5)), int(rng.integers(2, 4))
        chunks = [[ChunkTime(forward_s=float(rng.uniform(1, 2)), backward_s=float(rng.uniform(1, 2))) for _ in range(virtual)] for _ in range(stages)]
        assert long_run("interleaved", chunks, 6 * stages) <= makespan("interleaved", chunks, 6 * stages) * (1 + 1e-12)


def test_a_million_micro_batches_are_priced_at_once() -> None:
    chunks = [[ChunkTime(forward_s=1.0, backward_s=2.0)] for _ in range(12)]
    assert makespan("1f1b", chunks, 1_000_000) == pytest.approx(3.0 * (1_000_000 + 11))
