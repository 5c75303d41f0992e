"""Stored sets of measurements: kept, listed, read and deleted by the key that made them; named by requests; never changed under an answer."""
import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.jobs.planner import LibraryPlanner
from service.main import create_app
from service.settings import Settings
from tests.service.test_profiles import BLOCK, LAYOUT, PROBLEM

GPU = "A100-SXM4-40GB"
GEMMS = [{"gpu": GPU, "precision": "bf16", "m": m, "n": n, "k": k, "seconds": 2e-5 + 2.0 * m * n * k / 1e14}
         for m in (1024, 8192) for n in (1024, 8192) for k in (1024, 8192)]
SET = {"name": "ours", "source": "node 7, driver 550", "gemms": GEMMS, "memory": [{"gpu": "a100-sxm4-40gb", "bytes": 1e9, "seconds": 1e-3}],
       "attention": [{"gpu": GPU, "sequences": b, "seq_len": 1024, "heads": 16, "head_dim": 64, "forward_s": 1e-4 * b, "backward_s": 3e-4 * b}
                     for b in (1, 8)],
       "collectives": [{"gpu": GPU, "op": "all_reduce", "ranks": 4, "ranks_per_node": 4, "bytes": size, "seconds": 1e-5 + size / 1e11}
                       for size in (1e6, 1e9)]}
LAYERS = {"name": "layers", "layers": [BLOCK], "layers_of": {"architecture": PROBLEM["model"]["architecture"], "seq_len": 1024}}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with the library, on each of the two databases; a key of its own for each of two people."""
    path: Path = tmp_path_factory.mktemp("sets")
    more: dict[str, Any] = {}
    if request.param == "postgresql":
        new_database: Callable[[str], str] = request.getfixturevalue("new_database")
        more = {"database_url": new_database(path.name.replace("-", "_")), "executor_id": "tester"}
    settings = Settings(data_dir=path, workers=1, queue_poll_s=0.02, api_keys="one,two", max_profile_sets=4, **more)  # type: ignore[arg-type]
    with TestClient(create_app(settings, planner=LibraryPlanner()), base_url="http://127.0.0.1", headers={"Authorization": "Bearer one"}) as c:
        yield c


@pytest.fixture(autouse=True)
def emptied(real: TestClient) -> None:
    for kept in real.get("/v1/profiles").json()["items"]:
        assert real.delete(f"/v1/profiles/{kept['name']}").status_code == 204


OTHER = {"Authorization": "Bearer two"}


def estimate(of: TestClient, **changes: Any) -> dict[str, Any]:
    answer = of.post("/v1/estimates", json=PROBLEM | {"strategy": LAYOUT} | changes)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_a_set_is_kept_listed_read_and_deleted(real: TestClient) -> None:
    kept = real.post("/v1/profiles", json=SET)
    assert kept.status_code == 201 and kept.headers["location"] == "/v1/profiles/ours"
    line = kept.json()
    assert line["rows"] == {"layers": 0, "collectives": 2, "gemms": 8, "attention": 2, "memory": 1}
    assert line["devices"] == [GPU] and line["source"] == SET["source"] and line.pop("assumptions") == []
    assert real.get("/v1/profiles").json() == {"items": [line], "next_cursor": None}
    read = real.get("/v1/profiles/ours").json()
    assert read["digest"] == line["digest"] and read["memory"][0]["gpu"] == GPU and len(read["gemms"]) == 8
    assert real.delete("/v1/profiles/ours").status_code == 204
    assert real.get("/v1/profiles/ours").status_code == real.delete("/v1/profiles/ours").status_code == 404


def test_the_same_figures_are_the_same_set_and_others_need_another_name(real: TestClient) -> None:
    first = real.post("/v1/profiles", json=SET)
    again = real.post("/v1/profiles", json=SET | {"gemms": GEMMS[::-1], "source": "elsewhere"})
    assert again.status_code == 200 and again.json() == first.json()
    changed = copy.deepcopy(SET)
    changed["gemms"][0]["seconds"] *= 2                    # type: ignore[index]
    refused = real.post("/v1/profiles", json=changed)
    assert refused.status_code == 409 and refused.json()["type"].endswith("profile-set-refused") and "another name" in refused.json()["detail"]
    other = real.post("/v1/profiles", json=changed | {"name": "other"})
    assert other.status_code == 201 and other.json()["digest"] != first.json()["digest"]


def test_sets_are_listed_by_name_a_page_at_a_time_and_bounded(real: TestClient) -> None:
    for i in range(4):
        assert real.post("/v1/profiles", json=SET | {"name": f"s{i}"}).status_code == 201
    page = real.get("/v1/profiles?limit=3").json()
    assert [s["name"] for s in page["items"]] == ["s0", "s1", "s2"]
    assert [s["name"] for s in real.get(f"/v1/profiles?limit=3&cursor={page['next_cursor']}").json()["items"]] == ["s3"]
    full = real.post("/v1/profiles", json=SET | {"name": "s4"})
    assert full.status_code == 409 and "4 sets" in full.json()["detail"]
    assert real.post("/v1/profiles", json=SET | {"name": "s4"}, headers=OTHER).status_code == 201       # the bound is each key's own


def test_a_set_belongs_to_the_key_that_made_it(real: TestClient) -> None:
    real.post("/v1/profiles", json=SET)
    assert real.get("/v1/profiles/ours", headers=OTHER).status_code == 404
    assert "ours" not in {s["name"] for s in real.get("/v1/profiles", headers=OTHER).json()["items"]}
    assert real.delete("/v1/profiles/ours", headers=OTHER).status_code == 404
    answer = real.post("/v1/estimates", json=PROBLEM | {"strategy": LAYOUT, "profile_set": "ours"}, headers=OTHER)
    assert answer.status_code == 422 and [e["pointer"] for e in answer.json()["errors"]] == ["/profile_set"]


def test_an_estimate_by_a_named_set_is_the_one_by_its_rows(real: TestClient) -> None:
    real.post("/v1/profiles", json=SET)
    plain, named = estimate(real), estimate(real, profile_set="ours")
    assert named["step_time_s"] != plain["step_time_s"]
    assert named == estimate(real, profile_set={k: v for k, v in SET.items() if k != "name"})
    assert any("products on A100-SXM4-40GB" in note for note in named["confidence"]["outside_data"])     # the head's 32,000 columns


def test_layers_of_a_set_stand_for_their_model(real: TestClient) -> None:
    real.post("/v1/profiles", json=LAYERS)
    found = estimate(real, profile_set="layers")
    assert found["confidence"]["basis"] == "profile" and found == estimate(real, profiles={"layers": [BLOCK]})
    longer = PROBLEM["workload"] | {"seq_len": 2048}
    answer = real.post("/v1/estimates", json=PROBLEM | {"strategy": LAYOUT, "profile_set": "layers", "workload": longer})
    assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == "/profile_set"
    beyond = estimate(real, profile_set="layers", profiles={"extrapolate": True}, strategy={"tp": 2, "dp": 2, "micro_batch_size": 2})
    assert beyond["feasible"] and beyond["confidence"]["outside_data"]


def test_a_plan_by_a_set_names_its_figures_and_is_priced_again_when_the_set_is_gone(real: TestClient) -> None:
    digest = real.post("/v1/profiles", json=SET | LAYERS | {"name": "all"}).json()["digest"]
    body = PROBLEM | {"profile_set": "all"}
    answer = real.post("/v1/plans", json=body, headers={"Prefer": "wait=60"})
    assert answer.status_code == 201, answer.text
    result = answer.json()["result"]
    assert result["plan"]["versions"]["profiles"] == digest and result["predicted"]["confidence"]["basis"] == "profile"
    again = real.post("/v1/estimates", json=body | {"plan": result["plan"]})
    assert again.json() == result["predicted"]
    assert real.post("/v1/plans", json=body).headers["cache-status"] == "shardwright; hit"
    assert real.delete("/v1/profiles/all").status_code == 204
    gone = real.post("/v1/plans", json=body)
    assert gone.status_code == 422 and gone.json()["errors"][0]["pointer"] == "/profile_set"
    assert real.get(f"/v1/plans/{answer.json()['id']}/exports").status_code == 200     # what it was asked with is kept beside it
    changed = SET | LAYERS | {"name": "all", "layers": [BLOCK | {"forward_s": 0.1}]}
    assert real.post("/v1/profiles", json=changed).status_code == 201
    other = real.post("/v1/plans", json=body, headers={"Prefer": "wait=60"}).json()
    assert other["id"] != answer.json()["id"] and other["result"]["predicted"]["step_time_s"] > result["predicted"]["step_time_s"]
    by_others = real.post("/v1/estimates", json=body | {"plan": result["plan"]}).json()
    assert "/plan/versions/profiles" in {a["pointer"] for a in by_others["assumptions"]}


@pytest.mark.parametrize(("change", "pointer"), [
    ({"name": "no name"}, "/name"), ({"name": ""}, "/name"), ({"name": None}, "/name"), ({"name": "x" * 254}, "/name"),
    ({"gemms": [GEMMS[0] | {"gpu": "H1000"}]}, "/gemms/0/gpu"), ({"gemms": [GEMMS[0] | {"m": 0}]}, "/gemms/0/m"),
    ({"gemms": [GEMMS[0] | {"precision": "int8"}]}, "/gemms/0/precision"), ({"gemms": [GEMMS[0]] * 2}, "/gemms/1"),
    ({"gemms": [GEMMS[0] | {"seconds": -1.0}]}, "/gemms/0/seconds"), ({"rows": []}, "/rows"), ({"extrapolate": True}, "/extrapolate"),
    ({"collectives": [SET["collectives"][0] | {"ranks_per_node": 3}]}, "/collectives/0/ranks_per_node"),      # type: ignore[index]
    ({"layers": [BLOCK]}, "/layers_of"), ({"attention": [SET["attention"][0] | {"backward_s": None}]}, "/attention/0/backward_s"),  # type: ignore[index]
    ({"gemms": [], "memory": [], "attention": [], "collectives": []}, ""),
])
def test_bad_sets_are_pointed_at_with_what_is_legal(real: TestClient, change: dict[str, Any], pointer: str) -> None:
    answer = real.post("/v1/profiles", json=SET | change)
    assert answer.status_code == 422, answer.text
    fault, = answer.json()["errors"]
    assert fault["pointer"] == pointer and fault["legal"]
    assert real.get("/v1/profiles").json()["items"] == []


def test_the_documents_examples_are_accepted(real: TestClient) -> None:
    text = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text()
    inline, kept = re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    profiles = json.loads("{" + inline + "}")["profiles"]
    assert estimate(real, profiles=profiles | {"collectives": []})["confidence"]["basis"] == "profile"      # this cluster has no eight GPUs
    assert real.post("/v1/profiles", json=json.loads(kept)).status_code == 201


def test_too_many_rows_are_refused_quickly(real: TestClient) -> None:
    row = {"gpu": GPU, "bytes": 1.0, "seconds": 1.0}
    answer = real.post("/v1/profiles", json={"name": "many", "memory": [row] * 100_001})
    assert answer.status_code == 422 and "/memory" in {e["pointer"] for e in answer.json()["errors"]}


@pytest.mark.parametrize(("name", "status"), [("none", 422), ("no name", 422), (5, 422), ({}, 422), ({"gemms": [{}]}, 422), (None, 200)])
def test_names_that_name_nothing_are_refused_at_profile_set(real: TestClient, name: Any, status: int) -> None:
    answer = real.post("/v1/estimates", json=PROBLEM | {"strategy": LAYOUT, "profile_set": name})
    assert answer.status_code == status, answer.text
    if status == 422:
        assert all(e["pointer"].startswith("/profile_set") and e["legal"] for e in answer.json()["errors"])


def test_idempotent_posts_are_carried_out_once(real: TestClient) -> None:
    answers = [real.post("/v1/profiles", json=SET, headers={"Idempotency-Key": f"k-{real.base_url}-1"}) for _ in range(2)]
    assert [a.status_code for a in answers] == [201, 201] and answers[1].headers["idempotent-replayed"] == "true"
