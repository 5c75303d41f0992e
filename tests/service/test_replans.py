"""POST /v1/replans over HTTP: the decision, repeated and malformed requests, and the same at the terminal."""
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from service.cli.commands import app
from service.jobs.planner import LibraryPlanner
from tests.service.conftest import opened

WAIT = {"Prefer": "wait=60"}


def problem(network_gb_s: float) -> dict[str, Any]:
    groups = [{"name": name, "nodes": 1, "gpus_per_node": 1, "gpu": "A100-SXM4-80GB", "speed_factor": speed,
               "network": {"bandwidth_gb_s": network_gb_s, "latency_us": 0}} for name, speed in (("fast", 1.0), ("slow", 0.5))]
    model = {"architecture": {"num_layers": 6, "hidden_size": 1024, "ffn_hidden_size": 4096, "gated_ffn": False, "num_attention_heads": 8,
                              "vocab_size": 1000}}
    return {"model": model, "cluster": {"node_groups": groups}, "workload": {"kind": "training", "seq_len": 1024, "global_batch_size": 32},
            "constraints": {"micro_batch_size": [1], "dp": [1]}, "search": {"time_limit_s": 30.0, "alternatives": 1}}


@pytest.fixture(scope="module")
def planning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with opened(tmp_path_factory.mktemp("service"), planner=LibraryPlanner()) as c:     # type: ignore[arg-type]
        yield c


@pytest.fixture(scope="module")
def plan(planning: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = planning.post("/v1/plans", json=problem(1e5), headers=WAIT).json()["result"]["plan"]
    return found


def settled(client: TestClient, body: dict[str, Any]) -> Any:
    for _ in range(20):
        answer = client.post("/v1/replans", json=body, headers=WAIT)
        if answer.status_code != 202:
            return answer
        assert answer.json()["status"] in ("queued", "running") and answer.headers["retry-after"] == "1"
    raise AssertionError("the search did not end")


def test_move_and_stay(planning: TestClient, plan: dict[str, Any]) -> None:
    slow = problem(0.02)
    answer = settled(planning, slow | {"plan": plan, "remaining_steps": 100_000})
    assert answer.status_code == 200
    found = answer.json()
    assert found["decision"] == "move" and found["plan"] != plan and found["move"]["moved_bytes"] > 0
    body = {k: slow[k] for k in ("model", "cluster", "workload")}
    assert planning.post("/v1/estimates", json=body | {"plan": found["plan"]}).json() == found["predicted"]
    assert planning.post("/v1/estimates", json=body | {"plan": plan}).json() == found["stay"]
    assert planning.get(answer.headers["location"]).json()["result"]["outcome"] == found["search"]["outcome"]
    again = settled(planning, slow | {"plan": plan, "remaining_steps": 0}).json()
    assert again["decision"] == "stay" and again["plan"] == plan and again["search"]["plan_id"] == found["search"]["plan_id"]


@pytest.mark.parametrize(("change", "pointer"), [({"remaining_steps": -1}, "/remaining_steps"), ({"restart_s": "soon"}, "/restart_s"),
                                                 ({"objective": "cost"}, "/objective"), ({"plan": {}}, "/plan/pipelines")])
def test_faults_are_pointed_at(planning: TestClient, plan: dict[str, Any], change: dict[str, Any], pointer: str) -> None:
    answer = planning.post("/v1/replans", json=problem(1.0) | {"plan": plan, "remaining_steps": 5} | change)
    assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == pointer


def test_at_the_terminal(tmp_path: Path, planning: TestClient, plan: dict[str, Any]) -> None:
    (tmp_path / "problem.json").write_text(json.dumps(problem(0.02)))
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    base = ["replan", str(tmp_path / "problem.json"), "--plan", str(tmp_path / "plan.json"), "--remaining-steps"]
    said = CliRunner().invoke(app, [*base, "100000"])
    assert said.exit_code == 0 and "exceeds" in said.output and "slow to fast" in said.output
    found = json.loads(CliRunner().invoke(app, [*base, "0", "--json"]).stdout)
    assert found["decision"] == "stay" and found["plan"]["pipelines"] == plan["pipelines"]


def test_a_placement(planning: TestClient) -> None:
    body: dict[str, Any] = {"operators": [{"name": n, "seconds": 2.0} for n in "ab"], "devices": [{"name": "x"}, {"name": "y"}]}
    found = planning.post("/v1/placements", json=body)
    assert found.status_code == 200 and found.json()["outcome"] == "optimal" and found.json()["makespan_s"] == pytest.approx(2.0, rel=1e-5)
    wrong = planning.post("/v1/placements", json=body | {"tensors": [{"source": "a", "target": "c"}]})
    assert wrong.status_code == 422 and wrong.json()["errors"][0]["pointer"] == "/tensors/0/target"


def test_pools(planning: TestClient) -> None:
    body = {k: problem(1.0)[k] for k in ("model", "cluster", "workload")}
    found = planning.post("/v1/pools", json=body | {"stages": 2})
    assert found.status_code == 200 and found.json()["outcome"] == "optimal" and len(found.json()["pools"]) == 2
    assert planning.post("/v1/pools", json=body | {"stages": 3}).status_code == 422
