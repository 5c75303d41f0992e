"""Bounds on queue, streams, waiting and bodies; and what becomes of a search that will not stop."""
from pathlib import Path

from tests.service.bodies import plan_body
from tests.service.conftest import opened


def test_a_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    with opened(tmp_path, max_queued_plans=1) as client:
        first = client.post("/v1/plans", json=plan_body("endless"), headers={"Prefer": "respond-async"})
        full = client.post("/v1/plans", json=plan_body("one-more"))
        assert full.status_code == 503 and full.headers["retry-after"] and "1 plans are queued" in full.json()["detail"]
        joined = client.post("/v1/plans", json=plan_body("endless"), headers={"Prefer": "respond-async"})
        assert joined.status_code == 202 and joined.json()["id"] == first.json()["id"]


def test_a_stuck_search_is_killed_after_a_cancel(tmp_path: Path) -> None:
    with opened(tmp_path, cancel_grace_s=0.2) as client:
        plan = client.post("/v1/plans", json=plan_body("stuck"), headers={"Prefer": "wait=1"}).json()["id"]
        client.delete(f"/v1/plans/{plan}")
        next_one = client.post("/v1/plans", json=plan_body("next"))
        assert next_one.status_code == 201
        assert client.get(f"/v1/plans/{plan}").json()["status"] == "cancelled"


def test_the_best_known_plan_of_a_search_that_will_not_stop_is_not_an_answer(tmp_path: Path) -> None:
    with opened(tmp_path, solver_grace_s=1.0) as client:
        answer = client.post("/v1/plans", json=plan_body("stuck", search={"time_limit_s": 0.5}))
        assert answer.status_code == 500 and answer.json()["type"] == "urn:shardwright:problem:solver-overran"
        assert client.post("/v1/plans", json=plan_body("next")).status_code == 201


def test_waiting_is_bounded(tmp_path: Path) -> None:
    with opened(tmp_path, max_wait_s=1.0) as client:
        answer = client.post("/v1/plans", json=plan_body("endless"), headers={"Prefer": "wait=100000"})
        assert answer.status_code == 202 and answer.headers["preference-applied"] == "wait=1"


def test_the_bound_on_bodies_is_a_setting(tmp_path: Path) -> None:
    with opened(tmp_path, max_body_bytes=1024) as client:
        answer = client.post("/v1/plans", json=plan_body("x", pad="y" * 2000))
        assert answer.status_code == 413 and "at most 1024 bytes" in answer.json()["detail"]


def test_streams_are_bounded(tmp_path: Path) -> None:
    with opened(tmp_path, max_event_streams=1) as client:
        plan = client.post("/v1/plans", json=plan_body("slow"), headers={"Prefer": "respond-async"}).json()["id"]
        app = client.app
        app.state.streams.open = 1                         # type: ignore[attr-defined]
        busy = client.get(f"/v1/plans/{plan}/events")
        assert busy.status_code == 503 and busy.headers["retry-after"]
        app.state.streams.open = 0                         # type: ignore[attr-defined]
        assert client.get(f"/v1/plans/{plan}/events").status_code == 200
