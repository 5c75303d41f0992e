"""Calibration sets from the outside: runs added, refused and withdrawn; fits kept by version; estimates and plans that name a set. Both databases."""
import copy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.jobs.planner import LibraryPlanner
from service.main import create_app
from service.settings import Settings

PROBLEM = {
    "model": {"architecture": {"num_layers": 16, "hidden_size": 2048, "ffn_hidden_size": 8192, "num_attention_heads": 16, "vocab_size": 32000}},
    "cluster": {"node_groups": [{"name": "a", "nodes": 2, "gpus_per_node": 4, "gpu": "A100-SXM4-80GB"}]},
    "workload": {"kind": "training", "seq_len": 2048, "global_batch_size": 64},
}
LAYOUTS = [{"tp": t, "pp": p, "dp": 8 // (t * p), "micro_batch_size": b}
           for t, p, b in ((1, 1, 1), (2, 1, 2), (4, 1, 4), (2, 2, 1), (4, 2, 2), (1, 2, 2))]
OTHER = {"Authorization": "Bearer two"}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with the library, on each of the two databases; a key of its own for each of two people."""
    path: Path = tmp_path_factory.mktemp("calibrations")
    more: dict[str, Any] = {}
    if request.param == "postgresql":
        new_database: Callable[[str], str] = request.getfixturevalue("new_database")
        more = {"database_url": new_database(path.name.replace("-", "_")), "executor_id": "tester"}
    settings = Settings(data_dir=path, workers=1, queue_poll_s=0.02, api_keys="one,two", max_calibration_sets=4, max_observations=8, **more)  # type: ignore[arg-type]
    with TestClient(create_app(settings, planner=LibraryPlanner()), base_url="http://127.0.0.1", headers={"Authorization": "Bearer one"}) as c:
        yield c


@pytest.fixture(autouse=True)
def emptied(real: TestClient) -> None:
    for kept in real.get("/v1/calibrations").json()["items"]:
        assert real.delete(f"/v1/calibrations/{kept['name']}").status_code == 204


def body(layout: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return copy.deepcopy(PROBLEM) | {"strategy": layout or LAYOUTS[0]} | changes


def estimated(of: TestClient, **changes: Any) -> dict[str, Any]:
    answer = of.post("/v1/estimates", json=body(**changes))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def observe(of: TestClient, name: str = "ours", slower: float = 1.15, layout: dict[str, Any] | None = None, **headers: str) -> Any:
    """A run that took so much longer than the formulas say."""
    plain = estimated(of, layout=layout)["step_time_s"]
    return of.post("/v1/observations", json=body(layout, calibration_set=name, measured={"step_time_s": plain * slower}), headers=headers)


def observe_all(of: TestClient, name: str = "ours", slower: float = 1.15) -> list[dict[str, Any]]:
    answers = [observe(of, name, slower, layout) for layout in LAYOUTS]
    assert [a.status_code for a in answers] == [201] * len(LAYOUTS), answers[-1].text
    return [a.json() for a in answers]


def faults(answer: Any) -> dict[str, dict[str, Any]]:
    assert answer.status_code == 422, answer.text
    return {e["pointer"]: e for e in answer.json()["errors"]}


def test_runs_move_the_answers_that_name_their_set(real: TestClient) -> None:
    last = observe_all(real)[-1]
    assert last["fit"]["runs"] == 6 and last["calibration_set"] == "ours"
    accuracy = last["fit"]["step_time"]
    assert accuracy["left_out"] < 0.7 * accuracy["before"] and accuracy["after"] <= accuracy["left_out"] + 1e-9
    measured_s = last["measured"]["step_time_s"]
    assert abs(last["after"]["step_time_s"] / measured_s - 1) < abs(last["before"]["step_time_s"] / measured_s - 1)
    plain, calibrated = estimated(real, layout=LAYOUTS[1]), estimated(real, layout=LAYOUTS[1], calibration_set="ours")
    assert plain["confidence"]["basis"] == "analytic"
    assert calibrated["confidence"] == {"basis": "calibrated", "expected_error": last["fit"]["expected_error"], "outside_data": []}
    assert calibrated["step_time_s"] > 1.05 * plain["step_time_s"]
    assert {c["name"] for c in last["fit"]["coefficients"]} >= {"network", "compute"}
    assert all((c["multiplier"] == 1.0) == (c["kept_at_default"] is not None) for c in last["fit"]["coefficients"])


def test_a_set_is_listed_read_and_deleted(real: TestClient) -> None:
    kept = observe_all(real)
    items = real.get("/v1/calibrations").json()["items"]
    assert [(i["name"], i["observations"]) for i in items] == [("ours", 6)] and items[0]["fit"] == kept[-1]["fit"]
    read = real.get("/v1/calibrations/ours").json()
    assert [o["id"] for o in read["observations"]] == [k["id"] for k in kept]
    assert read["observations"][0]["measured"] == kept[0]["measured"]
    assert read["fits"][0]["calibration"]["version"] == read["fit"]["version"] == kept[-1]["fit"]["version"]
    assert {f["calibration"]["version"] for f in read["fits"]} == {k["fit"]["version"] for k in kept}
    posted = real.get(f"/v1/observations/{kept[0]['id']}").json()
    assert posted["request"]["strategy"] == LAYOUTS[0] and posted["calibration_set"] == "ours"
    assert real.delete("/v1/calibrations/ours").status_code == 204
    assert real.get("/v1/calibrations/ours").status_code == 404


def test_a_withdrawn_run_is_forgotten_by_the_next_fit(real: TestClient) -> None:
    first, second = observe(real, layout=LAYOUTS[0]).json(), observe(real, layout=LAYOUTS[1], slower=1.3).json()
    answer = real.delete(f"/v1/observations/{second['id']}")
    assert answer.status_code == 200 and answer.json()["fit"]["version"] == first["fit"]["version"]
    assert real.get(f"/v1/observations/{second['id']}").status_code == 404
    assert real.delete(f"/v1/observations/{first['id']}").json()["fit"] is None
    assert "holds no observation" in faults(real.post("/v1/estimates", json=body(calibration_set="ours")))["/calibration_set"]["message"]


def test_each_fit_is_kept_so_that_a_plan_can_be_priced_again(real: TestClient) -> None:
    observe_all(real)
    solved = real.post("/v1/plans", json=PROBLEM | {"calibration_set": "ours", "search": {"time_limit_s": 20}}, headers={"Prefer": "wait=60"})
    assert solved.status_code == 201, solved.text
    result = solved.json()["result"]
    version = result["plan"]["versions"]["calibration"]
    assert version == real.get("/v1/calibrations/ours").json()["fit"]["version"] and result["predicted"]["confidence"]["basis"] == "calibrated"
    observe(real, slower=1.4, layout=LAYOUTS[0] | {"recompute": "full"})
    assert real.get("/v1/calibrations/ours").json()["fit"]["version"] != version
    for named in ({}, {"calibration_set": "ours"}):
        again = real.post("/v1/estimates", json=PROBLEM | {"plan": result["plan"]} | named)
        assert again.json() == result["predicted"], named
    fresh = copy.deepcopy(result["plan"])
    fresh["versions"]["calibration"] = ""
    newest = real.post("/v1/estimates", json=PROBLEM | {"plan": fresh, "calibration_set": "ours"}).json()
    assert newest["step_time_s"] != result["predicted"]["step_time_s"]
    told = real.post("/v1/estimates", json=PROBLEM | {"plan": result["plan"]}, headers=OTHER).json()
    assert told["confidence"]["basis"] == "analytic" and "/plan/versions/calibration" in {a["pointer"] for a in told["assumptions"]}


def test_a_plan_is_found_anew_when_its_set_has_changed(real: TestClient) -> None:
    observe(real, layout=LAYOUTS[0])
    request = PROBLEM | {"calibration_set": "ours", "search": {"time_limit_s": 20}}
    first = real.post("/v1/plans", json=request, headers={"Prefer": "wait=60"})
    assert real.post("/v1/plans", json=request).headers["cache-status"] == "shardwright; hit"
    observe_all(real, slower=1.3)
    second = real.post("/v1/plans", json=request, headers={"Prefer": "wait=60"})
    assert second.status_code == 201 and second.json()["id"] != first.json()["id"]
    assert real.get(f"/v1/plans/{first.json()['id']}/exports/json").status_code == 200


def test_sets_are_their_keys_own(real: TestClient) -> None:
    kept = observe(real).json()
    assert real.get("/v1/calibrations", headers=OTHER).json()["items"] == []
    assert real.get("/v1/calibrations/ours", headers=OTHER).status_code == 404
    for path in (f"/v1/observations/{kept['id']}", "/v1/calibrations/ours"):
        assert real.delete(path, headers=OTHER).status_code == 404
    fault = faults(real.post("/v1/estimates", json=body(calibration_set="ours"), headers=OTHER))["/calibration_set"]
    assert "ours" not in (fault["legal"] or "")
    assert real.get("/v1/calibrations/ours").status_code == 200


def test_an_unknown_set_is_refused_with_those_there_are(real: TestClient) -> None:
    observe(real, "ours")
    observe(real, "theirs")
    for route, request in (("/v1/estimates", body(calibration_set="nobody")), ("/v1/plans", PROBLEM | {"calibration_set": "nobody"})):
        fault = faults(real.post(route, json=request))["/calibration_set"]
        assert "'nobody'" in fault["message"] and fault["legal"] == "ours, theirs"


@pytest.mark.parametrize(("measured", "pointer", "words"), [
    ({"step_time_s": 1e-6}, "/measured/step_time_s", "MFU"),
    ({"step_time_s": 1e6}, "/measured/step_time_s", "far off"),
    ({"peak_memory_gib": 500.0}, "/measured/peak_memory_gib", "more than a GPU has"),
    ({"peak_memory_gib": 0.1}, "/measured/peak_memory_gib", "far under"),
    ({}, "/measured", "nothing was measured"),
    ({"step_time_s": -1.0}, "/measured/step_time_s", "-1.0"),
    ({"step_time_s": 1.0, "loss": 2.0}, "/measured/loss", "unknown key"),
])
def test_what_cannot_be_is_refused_with_what_could(real: TestClient, measured: dict[str, float], pointer: str, words: str) -> None:
    fault = faults(real.post("/v1/observations", json=body(calibration_set="ours", measured=measured)))[pointer]
    assert words in fault["message"] and fault["legal"]
    assert real.get("/v1/calibrations").json()["items"] == []


def test_a_run_unlike_the_rest_of_its_set_is_refused(real: TestClient) -> None:
    observe_all(real)
    fault = faults(observe(real, slower=3.0, layout=LAYOUTS[0] | {"recompute": "full"}))["/measured/step_time_s"]
    assert "6 other runs" in fault["message"] and "a set of its own" in fault["legal"]
    assert observe(real, "another", slower=3.0).status_code == 201


def test_a_layout_without_a_price_teaches_nothing(real: TestClient) -> None:
    for layout, pointer in (({"tp": 64}, "/strategy"), ({"dp": 8, "schedule": "solver"}, "/strategy/schedule")):
        assert pointer in faults(real.post("/v1/observations", json=body(layout, calibration_set="ours", measured={"step_time_s": 1.0})))
    for key in ("calibration_set", "measured"):
        request = body(calibration_set="ours", measured={"step_time_s": 1.0})
        del request[key]
        assert "is missing" in faults(real.post("/v1/observations", json=request))[f"/{key}"]["message"]


def test_sets_and_observations_are_bounded(real: TestClient) -> None:
    for i in range(8):
        assert observe(real, layout=LAYOUTS[i % 6]).status_code == 201
    full = observe(real)
    assert full.status_code == 409 and "8 observations" in full.json()["detail"]
    for i in range(3):
        assert observe(real, f"more-{i}").status_code == 201
    assert "4 calibration sets" in observe(real, "one-too-many").json()["detail"]
    assert [i["name"] for i in real.get("/v1/calibrations", params={"limit": 2}).json()["items"]] == ["more-0", "more-1"]
    assert [i["name"] for i in real.get("/v1/calibrations", params={"cursor": "more-1"}).json()["items"]] == ["more-2", "ours"]


def test_a_run_sent_twice_is_kept_once(real: TestClient) -> None:
    first = observe(real, **{"Idempotency-Key": "run-1"})
    again = observe(real, **{"Idempotency-Key": "run-1"})
    assert again.status_code == 201 and again.headers["idempotent-replayed"] == "true" and again.json() == first.json()
    assert real.get("/v1/calibrations").json()["items"][0]["observations"] == 1


def test_runs_that_arrive_at_once_are_all_kept(real: TestClient) -> None:
    requests = [body(layout, calibration_set="ours", measured={"step_time_s": 1.1 * estimated(real, layout=layout)["step_time_s"]})
                for layout in LAYOUTS]
    answers: list[int] = []
    threads = [threading.Thread(target=lambda r=r: answers.append(real.post("/v1/observations", json=r).status_code)) for r in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [201] * len(LAYOUTS)
    read = real.get("/v1/calibrations/ours").json()
    assert len(read["observations"]) == read["fit"]["runs"] == len(LAYOUTS)


def test_measured_memory_alone_is_kept_apart_from_times(real: TestClient) -> None:
    peak = estimated(real)["memory"]["peak_gib"]
    kept = real.post("/v1/observations", json=body(calibration_set="ours", measured={"peak_memory_gib": 1.1 * peak}))
    assert kept.status_code == 201 and kept.json()["fit"]["runs"] == 0 and kept.json()["fit"]["peak_memory"]["runs"] == 1
    assert estimated(real, calibration_set="ours")["confidence"]["basis"] == "analytic"


def test_a_fit_may_be_posted_as_it_is(real: TestClient) -> None:
    observe_all(real)
    fit = real.get("/v1/calibrations/ours").json()["fits"][0]["calibration"]
    assert estimated(real, calibration_set=fit) == estimated(real, calibration_set="ours")
    fit["coefficients"] = [["compute", 1000.0]]
    assert "/calibration_set/coefficients/0/1" in faults(real.post("/v1/estimates", json=body(calibration_set=fit)))


def test_versions_of_a_plan_are_names(real: TestClient) -> None:
    """PostgreSQL takes no NUL in a string, and no version is that long."""
    made = real.post("/v1/plans", json={**{k: v for k, v in body(LAYOUTS[0]).items() if k != "strategy"}}, headers={"Prefer": "wait=30"}).json()
    plan = made["result"]["plan"]
    for version in ("a\x00b", "x" * 1000):
        refused = real.post("/v1/estimates", json={**{k: v for k, v in body(LAYOUTS[0]).items() if k != "strategy"},
                                                   "plan": {**plan, "versions": {**plan["versions"], "calibration": version}}})
        assert refused.status_code == 422 and "/plan/versions/calibration" in refused.text
