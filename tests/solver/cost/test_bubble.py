"""Closed forms against the recurrence and against the published table."""
import pytest

from solver.cost.bubble import bubble_s, closed_form_s, slimpipe_bubble_share
from solver.simulate.timeline import ChunkTime, makespan

F, B, W = 1.0, 1.1, 0.7


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 8), (4, 4), (8, 32)])
def test_equal_stages(schedule, p, m):
    chunks = [(ChunkTime(forward_s=F, backward_s=B + W, weight_gradient_s=W),)] * p
    assert makespan(schedule, chunks, m) == pytest.approx(m * (F + B + W) + bubble_s(schedule, p, F, B, W))


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 8), (4, 2, 8), (4, 5, 16)])
def test_equal_interleaved_stages(p, v, m):
    chunk = ChunkTime(forward_s=F / v, backward_s=(B + W) / v, weight_gradient_s=W / v)
    assert makespan("interleaved", [(chunk,) * v] * p, m) == pytest.approx(m * (F + B + W) + bubble_s("interleaved", p, F, B, W, v))


@pytest.mark.parametrize(("schedule", "expected"), [
    ("zb-h1", 3 * (F + B - W)), ("zb-h2", 3 * (F + B - 2 * W)), ("zb-v", 1.5 * (F + B - 2 * W)), ("v-half", 1.5 * (F + B + W)),
    ("v-min", 2 * (F + B + W))])
def test_previewed_schedules(schedule, expected):
    assert bubble_s(schedule, 4, F, B, W) == pytest.approx(expected)
    chunks = [(ChunkTime(forward_s=F, backward_s=B + W, weight_gradient_s=W),)] * 4
    assert closed_form_s(schedule, chunks, 8) == pytest.approx(8 * (F + B + W) + expected)


def test_a_bubble_is_never_negative():
    assert bubble_s("zb-h2", 4, 1.0, 1.0, 3.0) == 0.0


def test_slimpipe_bubble_of_the_published_70b_row():
    assert slimpipe_bubble_share(8, 16, 16, 10) == pytest.approx(0.0027, abs=1e-4)
