"""Numbers as people read them."""
import pytest

from service.cli.words import billions, percent, runs, seconds


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
