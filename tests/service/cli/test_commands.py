"""The program at a terminal: answers, files, exit codes."""
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.cli.commands import app
from tests.service.bodies import estimate_body, plan_body
from tests.service.planners import FakePlanner

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A planner that is quick and does as it is told."""
    monkeypatch.setattr("service.jobs.planner.LibraryPlanner", FakePlanner)
    yield


@pytest.fixture
def body(tmp_path: Path) -> Path:
    return _written(tmp_path, plan_body())


def _written(folder: Path, value: Any, name: str = "problem.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(value))
    return path


def _run(*arguments: Any, given: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=given)


@pytest.mark.usefixtures("fake")
def test_plan_shows_headline_stages_comparison_alternatives_and_assumptions(body: Path) -> None:
    done = _run("plan", body)
    assert done.exit_code == 0, done.output
    out = done.stdout
    assert "proved optimal: 0.3 s per step, 158,000 tokens/s, MFU 70.3 %" in out
    assert "1 on a node 0" in out and "21.0 of 78.1" in out
    assert "uniform" in out and "1.67 times as fast" in out
    assert "slower" in out
    assert "/cluster/node_groups/0/network: 25 GB/s, as is usual" in out
    assert "best 1.3 s" in done.stderr


@pytest.mark.usefixtures("fake")
def test_plan_as_json_is_the_result_of_the_http_interface(body: Path) -> None:
    done = _run("plan", body, "--json")
    assert json.loads(done.stdout)["predicted"]["step_time_s"] == 0.1 + 0.2
    assert json.loads(done.stdout)["plan"]["versions"]["cost_model"] == "fake-1"


@pytest.mark.usefixtures("fake")
def test_a_problem_is_read_from_standard_input() -> None:
    assert _run("plan", "-", given=json.dumps(plan_body())).exit_code == 0


@pytest.mark.usefixtures("fake")
def test_plan_exports_what_it_found(body: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    done = _run("plan", body, "--export", "megatron", "--out", out)
    assert done.exit_code == 0, done.output
    assert {p.name for p in out.iterdir()} == {"launch.sh", "hosts.txt", "ranks.json", "README.txt"}


@pytest.mark.usefixtures("fake")
def test_export_reads_the_plan_from_any_file_that_holds_one(body: Path, tmp_path: Path) -> None:
    result = json.loads(_run("plan", body, "--json").stdout)
    holders = {"plan": result["plan"], "result": result, "resource": {"id": "x", "result": result}}
    for name, value in holders.items():
        out = tmp_path / name
        done = _run("export", body, "--plan", _written(tmp_path, value, f"{name}.json"), "--target", "json", "--out", out)
        assert done.exit_code == 0, done.output
        assert (out / "plan.json").exists()


@pytest.mark.usefixtures("fake")
def test_what_a_launcher_cannot_run_is_exit_code_1_with_the_reason(body: Path, tmp_path: Path) -> None:
    plan = json.loads(_run("plan", body, "--json").stdout)["plan"] | {"schedule": "gpipe"}
    done = _run("export", body, "--plan", _written(tmp_path, plan, "plan.json"), "--out", tmp_path)
    assert done.exit_code == 1
    assert "gpipe" in done.stderr and "1f1b" in done.stderr


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("command", [["plan"], ["estimate"], ["plan", "--export", "nothing"]])
def test_bad_input_is_exit_code_2_with_every_fault(command: list[str], tmp_path: Path) -> None:
    bad = plan_body(extra=1, workload={"kind": "training", "seq_len": -5, "global_batch_size": 8})
    done = _run(command[0], _written(tmp_path, bad), *command[1:])
    assert done.exit_code == 2
    if "--export" in command:
        assert "json, megatron" in done.stderr
    else:
        assert "/extra" in done.stderr and "/workload/seq_len" in done.stderr and "legal:" in done.stderr


@pytest.mark.usefixtures("fake")
def test_faults_of_a_plan_are_named(body: Path, tmp_path: Path) -> None:
    done = _run("export", body, "--plan", _written(tmp_path, {"pipelines": [{"micro_batches": 0, "stages": []}]}, "plan.json"))
    assert done.exit_code == 2
    assert "/pipelines/0/micro_batches" in done.stderr


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model": NaN}', "[" * 100_000])
def test_files_that_hold_no_request_are_exit_code_2(text: str) -> None:
    done = _run("plan", "-", given=text)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output


def test_a_missing_file_is_exit_code_2() -> None:
    done = _run("plan", "/nowhere/at/all.json")
    assert done.exit_code == 2
    assert "cannot be read" in done.stderr


def test_estimate_fills_the_cluster_where_dp_is_left_out() -> None:
    done = _run("estimate", EXAMPLES / "llama-13b-a100-40gb-80gb.json", "--tp", "4", "--pp", "4", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["gpus"] == 32


def test_estimate_shows_why_a_layout_does_not_run() -> None:
    done = _run("estimate", EXAMPLES / "llama-13b-a100-40gb-80gb.json", "--tp", "1", "--pp", "1")
    assert done.exit_code == 1
    assert "not feasible" in done.stdout and "memory.over" in done.stdout


@pytest.mark.usefixtures("fake")
def test_degrees_given_change_the_strategy_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = FakePlanner.estimate
    monkeypatch.setattr(FakePlanner, "estimate", lambda self, problem, request: seen.append(request.strategy) or real(self, problem, request))
    path = _written(tmp_path, estimate_body(strategy={"tp": 2, "zero_stage": 0}))
    assert _run("estimate", path).exit_code == 0
    assert _run("estimate", path, "--pp", "2", "--dp", "1", "--sequence-parallel").exit_code == 0
    assert (seen[0].tp, seen[0].pp, seen[0].zero_stage) == (2, 1, 0)
    assert (seen[1].tp, seen[1].pp, seen[1].zero_stage, seen[1].sequence_parallel) == (2, 2, 0, True)


@pytest.mark.usefixtures("fake")
def test_options_of_the_search_stand_in_place_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = FakePlanner.search
    monkeypatch.setattr(FakePlanner, "search", lambda self, *a: seen.append((a[2], a[3])) or real(self, *a))
    path = _written(tmp_path, plan_body(search={"time_limit_s": 5, "seed": 3}, constraints={"tp": [2]}))
    assert _run("plan", path, "--time-limit", "9", "--uniform", "--launcher", "megatron").exit_code == 0
    constraints, options = seen[0]
    assert (options.time_limit_s, options.seed) == (9.0, 3)
    assert (constraints.tp, constraints.uniform, constraints.launcher) == ((2,), True, "megatron")


@pytest.mark.parametrize(("table", "name", "shown"), [
    ("gpus", "h100-sxm", "H100-SXM5-80GB"), ("links", "nvlink", "nvlink"), ("models", "70b", "llama-3.1-70b")])
def test_catalogue_is_shown_with_sources(table: str, name: str, shown: str) -> None:
    done = _run("catalog", table, name)
    assert shown in done.stdout and "source" in done.stdout
    rows = json.loads(_run("catalog", table, name, "--json").stdout)
    assert rows and all(r["source"] if "source" in r else r for r in rows)


def test_version_names_what_answers_depend_on() -> None:
    out = _run("version").stdout
    assert "shardwright 0." in out and "cost model" in out and "catalogue" in out


def test_serve_refuses_settings_that_would_open_the_service_to_others() -> None:
    done = _run("serve", "--host", "0.0.0.0")
    assert done.exit_code == 2
    assert "SHARDWRIGHT_API_KEYS" in done.stderr


def test_names_cannot_act_on_the_terminal() -> None:
    from service.cli.words import printable

    assert "\x1b" not in printable("\x1b[2Jgone") and "\r" not in printable("a\rb")
