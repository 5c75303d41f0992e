"""Steps of very many micro-batches."""
import numpy as np
import pytest

from solver.simulate.timeline import ChunkTime, long_run, makespan


def test_what_stands_for_runs_too_long_is_a_bound() -> None:
    rng = np.random.default_rng(8)
    for _ in range(30):
        stages, virtual = int(rng.integers(2, 5)), int(rng.integers(2, 4))
        chunks = [[ChunkTime(forward_s=float(rng.uniform(1, 2)), backward_s=float(rng.uniform(1, 2))) for _ in range(virtual)] for _ in range(stages)]
        assert long_run(chunks, 6 * stages) <= makespan("interleaved", chunks, 6 * stages) * (1 + 1e-12)


@pytest.mark.parametrize(("schedule", "virtual"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2)])
def test_a_million_micro_batches_are_priced_at_once(schedule: str, virtual: int) -> None:
    chunks = [[ChunkTime(forward_s=1.0 / virtual, backward_s=2.0 / virtual)] * virtual for _ in range(8)]
    assert makespan(schedule, chunks, 1_000_000) == pytest.approx(3.0 * (1_000_000 + 7 / virtual))
