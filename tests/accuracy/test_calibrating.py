"""Some runs of a cluster are observed, the others scored before and after."""
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from solver.domain.calibration import Calibration
from solver.domain.degrees import Strategy
from solver.domain.estimate import Estimate
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from tests.accuracy.calibrating import calibrated, fitted
from tests.accuracy.rows import Row, read
from tests.accuracy.samples import answer, cells, write_csv
from tests.accuracy.scoring import score


def _predict(problem: Problem, layout: Strategy | Plan) -> Estimate:
    """8 s without calibration, else what the calibration says."""
    return answer(8.0 if problem.calibration is None else dict(problem.calibration.coefficients)["step_s"])


def test_spread_rows_are_observed_and_the_rest_is_scored(tmp_path: Path) -> None:
    rows = read(write_csv(tmp_path / "runs.csv", [
        *(cells(id=f"a-{i}", step_time_s="10") for i in range(6)), *(cells(id=f"b-{i}", step_time_s="8", source="Other") for i in range(7)),
        *(cells(id=f"c-{i}", step_time_s="9", source="Few") for i in range(5)), cells(id="a-out", oom="1"),
        cells(id="a-what", recompute="", step_time_s="1"),
    ])).rows
    observed: dict[str, list[str]] = {}

    def fit(name: str, seen: Sequence[Row]) -> Calibration:
        observed[name] = [row.name for row in seen]
        return Calibration(set_name=name, version="1", coefficients=(("step_s", 9.0),), expected_error=0.1, runs=len(seen))

    found = calibrated(score(rows, _predict).scored, 2, fit, _predict)
    assert observed == {"Somebody-A100-SXM-80GB": ["a-0", "a-3"], "Other-A100-SXM-80GB": ["b-0", "b-3"]}
    assert (found.observed, found.clusters, found.before.rows, found.after.rows) == (2, 2, 9, 9)
    assert found.before.by_source["a"].mean == pytest.approx(0.2)
    assert found.after.by_source["a"].mean == pytest.approx(0.1)
    assert found.worse() == ("b",)
    assert len({id(s.row.problem) for s in found.after.scored}) == 2, "rows that shared a problem still do"


def test_runs_that_are_predicted_right_leave_every_coefficient_at_its_default(tmp_path: Path) -> None:
    runs = [cells(micro_batch=size, n_gpus=gpus, global_batch="256") for size in ("1", "2") for gpus in ("8", "32")]
    rows = read(write_csv(tmp_path / "runs.csv", runs)).rows
    found = fitted("s", [replace(row, step_time_s=row.predicted().step_time_s) for row in rows])
    assert found.runs == 4
    assert [multiplier for _, multiplier in found.coefficients] == pytest.approx([1.0] * len(found.coefficients))
