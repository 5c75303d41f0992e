"""Measured runs in a file: the fit of them, what it changes, and what is refused."""
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.cli.commands import app
from tests.service.test_calibrations import LAYOUTS, PROBLEM


def _run(*arguments: Any, given: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=given)


def _written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Runs that took 15 % longer than predicted."""
    folder, found = tmp_path_factory.mktemp("runs"), []
    for layout in LAYOUTS:
        body = PROBLEM | {"strategy": layout}
        plain = json.loads(_run("estimate", _written(folder / "problem.json", body), "--json").stdout)
        found.append(body | {"measured": {"step_time_s": 1.15 * plain["step_time_s"], "peak_memory_gib": plain["memory"]["peak_gib"]}})
    return found


def test_a_fit_is_shown_written_and_used(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    fit, problem = tmp_path / "fit.json", _written(tmp_path / "problem.json", PROBLEM | {"strategy": LAYOUTS[1]})
    done = _run("calibrate", _written(tmp_path / "runs.json", runs), "--name", "ours", "--out", fit)
    assert done.exit_code == 0, done.output
    assert "Mean error of the step time over 6 runs: 13.0 % before" in done.stdout and "runs left out of the fit" in done.stdout
    assert json.loads(fit.read_text())["set_name"] == "ours"
    plain, calibrated = (json.loads(_run("estimate", problem, *more, "--json").stdout) for more in ((), ("--calibration", fit)))
    assert calibrated["step_time_s"] > 1.05 * plain["step_time_s"] and calibrated["confidence"]["basis"] == "calibrated"
    assert "(by your runs)" in _run("estimate", problem, "--calibration", fit).stdout


def test_lines_and_standard_input_are_read_alike(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    listed = json.loads(_run("calibrate", _written(tmp_path / "runs.json", runs), "--json").stdout)
    assert listed == json.loads(_run("calibrate", "-", "--json", given="\n".join(map(json.dumps, runs))).stdout)
    assert [r["measured"] for r in listed["runs"]] == [r["measured"] for r in runs]
    assert _run("plan", _written(tmp_path / "problem.json", PROBLEM), "--calibration", _written(tmp_path / "fit.json", listed["calibration"]),
                "--time-limit", "20").exit_code == 0


def test_every_fault_of_every_run_is_named(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    absurd = [runs[0], runs[1] | {"measured": {"step_time_s": 1e9}}, runs[2] | {"measured": {"peak_memory_gib": 1e4}}]
    done = _run("calibrate", _written(tmp_path / "runs.json", absurd))
    assert done.exit_code == 2 and "2 faults" in done.stderr
    assert "/1/measured/step_time_s" in done.stderr and "/2/measured/peak_memory_gib" in done.stderr
    done = _run("calibrate", _written(tmp_path / "runs.json", [runs[0] | {"measured": {}}, 7]))
    assert done.exit_code == 2 and "/0/measured" in done.stderr and "/1: is not an object" in done.stderr
    assert _run("calibrate", _written(tmp_path / "runs.json", [])).exit_code == 2


def test_a_set_by_name_needs_a_service(tmp_path: Path) -> None:
    done = _run("estimate", _written(tmp_path / "problem.json", PROBLEM | {"strategy": LAYOUTS[0], "calibration_set": "ours"}))
    assert done.exit_code == 2 and "/calibration_set" in done.stderr
