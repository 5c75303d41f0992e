"""Schedules: closed forms for equal stages, many plans at once as one by one, activations in flight as counted, 1F1B against GPipe."""
import numpy as np
import pytest

from solver.domain.degrees import ScheduleName
from solver.simulate.batch import makespans
from solver.simulate.orders import ORDERS, in_flight
from solver.simulate.timeline import ChunkTime, intervals, makespan

SHAPES = [(p, m) for p in range(1, 7) for m in range(1, 13)]
ROUNDS = [(p, v, m) for p in range(2, 6) for v in range(2, 5) for m in range(p, 5 * p, p)]


def chunks(forward: np.ndarray, backward: np.ndarray) -> list[tuple[ChunkTime, ...]]:
    """[stages, virtual stages] of seconds as chunks."""
    return [tuple(ChunkTime(forward_s=float(f), backward_s=float(b)) for f, b in zip(*stage, strict=True))
            for stage in zip(forward, backward, strict=True)]


@pytest.mark.parametrize(("p", "m"), SHAPES)
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_equal_stages_take_m_and_the_bubble_of_p_minus_1(schedule: ScheduleName, p: int, m: int) -> None:
    assert makespan(schedule, chunks(np.full((p, 1), 1.0), np.full((p, 1), 2.5)), m) == pytest.approx((m + p - 1) * 3.5)


@pytest.mark.parametrize(("p", "v", "m"), ROUNDS)
def test_virtual_stages_divide_the_bubble(p: int, v: int, m: int) -> None:
    times = chunks(np.full((p, v), 1.0 / v), np.full((p, v), 2.5 / v))
    assert makespan("interleaved", times, m) == pytest.approx(m * 3.5 + (p - 1) * 3.5 / v)


def test_by_hand() -> None:
    """Two stages of (1, 2) and (3, 1), two micro-batches."""
    times = [(ChunkTime(forward_s=1.0, backward_s=2.0),), (ChunkTime(forward_s=3.0, backward_s=1.0),)]
    found = {(i.stage, i.kind, i.micro_batch): (i.start_s, i.end_s) for i in intervals("1f1b", times, 2)}
    assert found == {(0, "F", 0): (0, 1), (0, "F", 1): (1, 2), (1, "F", 0): (1, 4), (1, "B", 0): (4, 5), (1, "F", 1): (5, 8), (1, "B", 1): (8, 9),
                     (0, "B", 0): (5, 7), (0, "B", 1): (9, 11)}
    assert makespan("1f1b", times, 2) == 11


@pytest.mark.parametrize(("schedule", "p", "v", "m"), [("gpipe", p, 1, m) for p, m in SHAPES] + [("1f1b", p, 1, m) for p, m in SHAPES]
                         + [("interleaved", p, v, m) for p, v, m in ROUNDS])
def test_in_flight_is_the_peak_of_the_instructions(schedule: ScheduleName, p: int, v: int, m: int) -> None:
    for stage in range(p):
        held, peak = 0, 0
        for kind, _, _ in ORDERS[schedule](stage, p, m, v):
            held += 1 if kind == "F" else -1
            peak = max(peak, held)
        assert held == 0
        assert in_flight(schedule, stage, p, m, v) == peak / v


def drawn(seed: int) -> tuple[ScheduleName, np.ndarray, np.ndarray, np.ndarray]:
    """Seven plans: schedule, forward and backward [plans, stages, virtual stages], micro-batches by plan. Stages from all alike to quite unlike."""
    rng = np.random.default_rng(seed)
    schedule: ScheduleName = ("gpipe", "1f1b", "interleaved")[seed % 3]
    p, v = int(rng.integers(1, 8)), int(rng.integers(1, 5)) if schedule == "interleaved" else 1
    m = p * rng.integers(1, 16, 7) if schedule == "interleaved" else rng.integers(1, 40, 7)
    spread = rng.choice([0.0, 0.01, 0.3, 3.0], (7, 1, 1))
    forward, backward = 1.0 + spread * rng.random((7, p, v)), 2.0 + spread * rng.random((7, p, v))
    forward[:, 0, 0] += 0.1
    forward[:, -1, -1] += rng.random(7) * 3
    return schedule, forward, backward, m


@pytest.mark.parametrize("seed", range(90))
def test_many_plans_at_once_take_what_each_takes_to_the_last_digit(seed: int) -> None:
    schedule, forward, backward, m = drawn(seed)
    one_by_one = [makespan(schedule, chunks(f, b), int(n)) for f, b, n in zip(forward, backward, m, strict=True)]
    assert makespans(schedule, forward, backward, m).tolist() == one_by_one


@pytest.mark.parametrize("seed", range(90))
def test_closed_forms_and_repeated_rounds_are_the_recurrence(seed: int) -> None:
    schedule, forward, backward, m = drawn(seed)
    for f, b, n in zip(forward, backward, m, strict=True):
        timed = max(i.end_s for i in intervals(schedule, chunks(f, b), int(n)))
        assert makespan(schedule, chunks(f, b), int(n)) == pytest.approx(timed, rel=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_stages_that_work_off_what_they_are_ahead_take_what_the_recurrence_does(seed: int) -> None:
    """First and last stage nearly as slow as each other: it takes many rounds until one waits for the other in every round."""
    rng = np.random.default_rng(seed)
    p, v, m = int(rng.integers(2, 6)), int(rng.integers(2, 5)), 40
    forward, backward = np.full((5, p, v), 1.0), np.full((5, p, v), 2.0)
    forward[:, 0] += rng.choice([0.001, 0.01, 0.1], (5, 1)) * rng.random((5, 1))
    forward[:, -1, -1] += 0.02 * v * rng.random(5)
    found = makespans("interleaved", forward, backward, m * p)
    for f, b, span in zip(forward, backward, found, strict=True):
        assert makespan("interleaved", chunks(f, b), m * p) == span
        assert span == pytest.approx(max(i.end_s for i in intervals("interleaved", chunks(f, b), m * p)), rel=1e-12)


@pytest.mark.parametrize("seed", range(300))
def test_1f1b_is_never_slower_than_gpipe(seed: int) -> None:
    """What the search relies on where both are allowed; stages of any forward and backward times."""
    rng = np.random.default_rng(seed)
    p, m = int(rng.integers(1, 7)), int(rng.integers(1, 12))
    times = chunks(rng.exponential(1.0, (p, 1)) ** 2, rng.exponential(1.0, (p, 1)) ** 2)
    assert makespan("1f1b", times, m) <= makespan("gpipe", times, m) * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(100))
def test_longer_chunks_never_shorten_a_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schedule: ScheduleName = ("gpipe", "1f1b", "interleaved")[seed % 3]
    p, v = int(rng.integers(2, 5)), 2 if schedule == "interleaved" else 1
    forward, backward, m = rng.exponential(1.0, (p, v)), rng.exponential(1.0, (p, v)), p * int(rng.integers(1, 4))
    longer = chunks(forward + rng.exponential(0.3, (p, v)) * (rng.random((p, v)) < 0.4), backward + rng.exponential(0.3, (p, v)))
    assert makespan(schedule, longer, m) >= makespan(schedule, chunks(forward, backward), m)
