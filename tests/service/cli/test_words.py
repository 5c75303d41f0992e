"""Numbers as people read them."""
import pytest

from service.cli.progress import line
from service.cli.views import proof
from service.cli.words import billions, percent, runs, seconds
from solver.search.result import Progress


@pytest.mark.parametrize(("value", "text"), [
    (None, "none"), (0.01234567, "12.35 ms"), (0.81234, "0.8123 s"), (12.3456, "12.35 s"), (1234.5, "1,234.50 s")])
def test_seconds(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 3, 5], "0-3, 5"), ([2, 1, 2, 9, 10], "1-2, 9-10")])
def test_runs(numbers: list[int], text: str) -> None:
    assert runs(numbers) == text


def test_shares_and_sizes() -> None:
    assert percent(0.0312) == "3.1 %" and percent(None) == "unknown"
    assert billions(70_553_706_496) == "70.55 B" and billions(124_439_808) == "124.4 M"


@pytest.mark.parametrize(("outcome", "bound_s", "said"), [
    ("optimal", 24.0, "proved optimal"), ("feasible", 20.0, "feasible, at most 20.0 % slower than the best possible (bound 20 s)"),
    ("feasible", 0.0, "feasible, no bound yet"), ("feasible", None, "feasible, no bound yet")])
def test_what_is_proved(outcome: str, bound_s: float | None, said: str) -> None:
    assert proof({"outcome": outcome, "bound": {"step_time_s": bound_s}, "predicted": {"step_time_s": 24.0}}) == said


@pytest.mark.parametrize(("bound_s", "said"), [(None, "no bound yet"), (0.0, "no bound yet"), (20.0, "bound 20 s | gap 16.7 %")])
def test_progress_names_a_bound_only_where_there_is_one(bound_s: float | None, said: str) -> None:
    assert f"best 24 s | {said} | 1 candidates" in line(Progress(phase="search", incumbent_s=24.0, bound_s=bound_s, gap=1 / 6, candidates=1, pruned=0,
                                                               solved=0, elapsed_s=1.0))
