"""Measurements of the user in requests: priced by, planned by, part of the cache's key, and named by the plan's versions."""
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.jobs.planner import LibraryPlanner
from service.main import create_app
from service.settings import Settings

PROBLEM: dict[str, Any] = {
    "model": {"architecture": {"num_layers": 4, "hidden_size": 1024, "ffn_hidden_size": 4096, "num_attention_heads": 16, "vocab_size": 32000}},
    "cluster": {"node_groups": [{"name": "a100", "nodes": 1, "gpus_per_node": 4, "gpu": "A100-SXM4-40GB"}]},
    "workload": {"kind": "training", "seq_len": 1024, "global_batch_size": 16},
}
BLOCK = {"gpu": "A100-SXM4-40GB", "tp": 1, "micro_batch_size": 2, "layer": "block", "forward_s": 0.0021, "backward_s": 0.0043, "weight_grad_s": None,
         "update_s": 0.0004, "parameter_bytes": 25182208, "activation_bytes": 71303168, "output_bytes": 4194304}
PROFILES = {"layers": [BLOCK, BLOCK | {"micro_batch_size": 4, "forward_s": 0.0040, "backward_s": 0.0082, "activation_bytes": 142606336}],
            "collectives": [{"op": "all_reduce", "groups": ["a100"], "ranks": 4, "bytes": 67108864, "seconds": 0.0007}]}
LAYOUT = {"tp": 1, "dp": 4, "micro_batch_size": 2}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("profiles"), workers=1, queue_poll_s=0.02)
    with TestClient(create_app(settings, planner=LibraryPlanner()), base_url="http://127.0.0.1") as c:
        yield c


def estimate(of: TestClient, **changes: Any) -> dict[str, Any]:
    answer = of.post("/v1/estimates", json=PROBLEM | {"strategy": LAYOUT} | changes)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_an_estimate_rests_on_the_measurements(real: TestClient) -> None:
    formulas, found = estimate(real), estimate(real, profiles=PROFILES)
    assert formulas["confidence"]["basis"] == "analytic" and found["confidence"]["basis"] == "profile"
    assert found["confidence"]["expected_error"] < formulas["confidence"]["expected_error"]
    micro_batches = 2                                      # 16 sequences over 4 replicas of 2
    assert found["time"]["compute_s"] > micro_batches * 4 * (0.0021 + 0.0043)
    assert found["memory"]["stages"][0]["weights_gib"] < formulas["memory"]["stages"][0]["weights_gib"] * 1.05


def test_what_is_not_measured_is_an_answer_with_the_nearest_measurement(real: TestClient) -> None:
    found = estimate(real, profiles=PROFILES, strategy={"tp": 2, "dp": 2, "micro_batch_size": 2})
    assert not found["feasible"]
    reason, = (r for r in found["reasons"] if r["code"] == "profile.missing")
    assert "tp 1 with 2 to 4 sequences" in reason["message"] and "extrapolate" in reason["fix"]
    beyond = estimate(real, profiles=PROFILES | {"extrapolate": True}, strategy={"tp": 2, "dp": 2, "micro_batch_size": 2})
    assert beyond["feasible"] and "carried over from tp 1" in beyond["confidence"]["outside_data"][0]


def test_a_plan_by_measurements_can_be_priced_again(real: TestClient) -> None:
    answer = real.post("/v1/plans", json=PROBLEM | {"profiles": PROFILES}, headers={"Prefer": "wait=60"})
    assert answer.status_code == 201, answer.text
    result = answer.json()["result"]
    assert result["outcome"] == "optimal" and result["predicted"]["confidence"]["basis"] == "profile"
    assert {s["tp"] for p in result["plan"]["pipelines"] for s in p["stages"]} == {1}
    assert any(r["code"] == "profile.missing" for r in result["rejected"])
    again = real.post("/v1/estimates", json=PROBLEM | {"profiles": PROFILES, "plan": result["plan"]})
    assert again.json() == result["predicted"]
    assert len(result["plan"]["versions"]["profiles"]) == 16
    other = real.post("/v1/estimates", json=PROBLEM | {"profiles": PROFILES | {"extrapolate": True}, "plan": result["plan"]}).json()
    assert "/plan/versions/profiles" in {a["pointer"] for a in other["assumptions"]}
    assert other["step_time_s"] == result["predicted"]["step_time_s"]


def test_other_measurements_are_another_question(real: TestClient) -> None:
    posted = [PROBLEM | {"profiles": copy.deepcopy(PROFILES)} for _ in range(3)]
    posted[1]["profiles"]["layers"][0]["forward_s"] = 0.0022
    posted[2]["profiles"]["layers"].reverse()
    ids = [real.post("/v1/plans", json=body, headers={"Prefer": "wait=60"}).json()["id"] for body in posted]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize(("row", "pointer"), [
    ({"gpu": "H1000"}, "/profiles/layers/0/gpu"), ({"layer": 4}, "/profiles/layers/0/layer"), ({"layer": True}, "/profiles/layers/0/layer"),
    ({"layer": -1}, "/profiles/layers/0/layer"), ({"forward_s": 0}, "/profiles/layers/0/forward_s"), ({"tp": 0}, "/profiles/layers/0/tp"),
    ({"weight_grad_s": 1.0}, "/profiles/layers/0/weight_grad_s"), ({"seconds": 1}, "/profiles/layers/0/seconds"),
    ({"forward_s": "fast"}, "/profiles/layers/0/forward_s"), ({"micro_batch_size": 1.5}, "/profiles/layers/0/micro_batch_size"),
])
def test_bad_rows_are_pointed_at_with_what_is_legal(real: TestClient, row: dict[str, Any], pointer: str) -> None:
    answer = real.post("/v1/estimates", json=PROBLEM | {"strategy": LAYOUT, "profiles": {"layers": [BLOCK | row]}})
    assert answer.status_code == 422, answer.text
    fault, = answer.json()["errors"]
    assert fault["pointer"] == pointer and fault["legal"]


@pytest.mark.parametrize(("row", "pointer"), [
    ({"op": "reduce"}, "/profiles/collectives/0/op"), ({"groups": ["b"]}, "/profiles/collectives/0/groups/0"),
    ({"groups": []}, "/profiles/collectives/0/groups"),
    ({"ranks": 1}, "/profiles/collectives/0/ranks"), ({"ranks": 5}, "/profiles/collectives/0/ranks"), ({"bytes": 0}, "/profiles/collectives/0/bytes"),
])
def test_bad_collectives_too(real: TestClient, row: dict[str, Any], pointer: str) -> None:
    rows = [PROFILES["collectives"][0] | row]              # type: ignore[operator]
    answer = real.post("/v1/estimates", json=PROBLEM | {"strategy": LAYOUT, "profiles": {"collectives": rows}})
    assert answer.status_code == 422 and [e["pointer"] for e in answer.json()["errors"]] == [pointer], answer.text


def test_no_rows_are_no_profiles(real: TestClient) -> None:
    assert estimate(real, profiles={}) == estimate(real)
