"""The plan resource from the outside: answers, cache, waiting, cancelling, listing. On both databases."""
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient

from tests.service.bodies import estimate_body, plan_body
from tests.service.planners import STEP_TIME_S


def post(client: TestClient, body: dict[str, Any], **headers: str) -> Any:
    return client.post("/v1/plans", json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})


def searches(client: TestClient, cluster: str) -> int:
    """How often the planner was asked to search this cluster."""
    diary: Path = client.diary                              # type: ignore[attr-defined]
    return sum(line.startswith(cluster + " ") for line in diary.read_text().splitlines()) if diary.exists() else 0


def settled(client: TestClient, plan_id: str, within_s: float = 10.0) -> dict[str, Any]:
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        plan = client.get(f"/v1/plans/{plan_id}").json()
        if plan["status"] not in ("queued", "running"):
            return plan
        time.sleep(0.05)
    raise AssertionError(f"plan {plan_id} did not settle: {plan}")


def test_solved_within_the_wait(either: TestClient) -> None:
    answer = post(either, plan_body("first"))
    assert answer.status_code == 201
    plan = answer.json()
    assert answer.headers["location"] == f"/v1/plans/{plan['id']}"
    assert "cache-status" not in answer.headers
    assert plan["status"] == "succeeded"
    result = plan["result"]
    assert set(result) == {"outcome", "plan", "predicted", "bound", "gap", "alternatives", "rejected", "baselines", "tiers", "reasons", "relaxation",
                           "search", "assumptions", "objective", "batch_sizes"}
    assert result["outcome"] == "optimal" and result["bound"] == {"step_time_s": STEP_TIME_S}
    assert result["plan"]["versions"]["cost_model"] == "fake-1"
    assert plan["progress"]["phase"] == "search"
    assert either.get(answer.headers["location"]).content == answer.content


def test_any_text_may_name_a_model(either: TestClient) -> None:
    body = plan_body("named")
    body["model"]["architecture"]["name"] = "nul \0, quote \", smile \U0001f600"
    assert post(either, body).status_code == 201
    assert "smile \U0001f600" in either.get("/v1/plans", params={"limit": 1}).json()["items"][0]["model_name"]


def test_floats_survive_digit_for_digit(either: TestClient) -> None:
    answer = post(either, plan_body("digits"))
    assert b'"step_time_s":0.30000000000000004' in answer.content
    estimate = either.post("/v1/estimates", json=estimate_body("digits"))
    assert orjson.dumps(answer.json()["result"]["predicted"]) == orjson.dumps(estimate.json())


def test_seen_before_is_a_hit(either: TestClient) -> None:
    first = post(either, plan_body("twice"))
    reordered = dict(reversed(plan_body("twice").items()))
    second = post(either, reordered)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["cache-status"] == "shardwright; hit"
    assert second.headers["location"] == first.headers["location"]
    assert second.content == first.content
    assert searches(either, "twice") == 1


def test_what_changes_the_answer_misses_the_cache(either: TestClient) -> None:
    post(either, plan_body("varied"))
    for change in ({"search": {"seed": 1}}, {"constraints": {"tp": [1]}}, {"workload": {"seq_len": 129, "global_batch_size": 8}}):
        assert post(either, plan_body("varied", **change)).status_code == 201
    assert searches(either, "varied") == 4


def test_no_cache_solves_afresh(either: TestClient) -> None:
    first = post(either, plan_body("fresh"))
    second = post(either, plan_body("fresh"), cache_control="no-cache")
    assert second.status_code == 201 and second.json()["id"] != first.json()["id"]
    assert searches(either, "fresh") == 2


def test_an_unproved_answer_stands_until_more_time_is_asked_for(either: TestClient) -> None:
    def ask(limit_s: float) -> int:
        return post(either, plan_body("unproved", search={"time_limit_s": limit_s})).status_code

    assert [ask(10), ask(10), ask(5), ask(11), ask(11)] == [201, 200, 200, 201, 200]


def test_a_proved_answer_stands_whatever_time_is_asked_for(either: TestClient) -> None:
    assert [post(either, plan_body("proved", search={"time_limit_s": t})).status_code for t in (5, 500)] == [201, 200]


def test_respond_async_and_follow(either: TestClient) -> None:
    answer = post(either, plan_body("slow"), prefer="respond-async")
    assert answer.status_code == 202 and answer.headers["retry-after"] == "1"
    assert answer.headers["preference-applied"] == "respond-async"
    plan = answer.json()
    assert plan["status"] in ("queued", "running") and plan["result"] is None
    assert settled(either, plan["id"])["status"] == "succeeded"


def test_wait_is_bounded_by_what_was_asked(either: TestClient) -> None:
    begun_s = time.monotonic()
    answer = post(either, plan_body("slow", search={"seed": 7}), prefer="wait=1")
    assert answer.status_code == 202 and answer.headers["preference-applied"] == "wait=1"
    assert 0.9 < time.monotonic() - begun_s < 1.8
    settled(either, answer.json()["id"])


def test_equal_requests_in_flight_are_solved_once(either: TestClient) -> None:
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(post(either, plan_body("slow", search={"seed": 8})))) for _ in range(6)]
    before = searches(either, "slow")
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {a.status_code for a in answers} == {201}
    assert len({a.json()["id"] for a in answers}) == 1
    assert searches(either, "slow") - before == 1


def test_the_last_requester_stops_the_search_and_the_best_plan_is_kept(either: TestClient) -> None:
    body = plan_body("endless")
    first = post(either, body, prefer="wait=1")
    second = post(either, body, prefer="respond-async")
    plan_id = first.json()["id"]
    assert second.json()["id"] == plan_id
    assert either.delete(f"/v1/plans/{plan_id}").status_code == 202
    time.sleep(1.0)
    assert either.get(f"/v1/plans/{plan_id}").json()["status"] == "running"
    assert either.delete(f"/v1/plans/{plan_id}").status_code == 202
    plan = settled(either, plan_id, within_s=3.0)
    assert plan["status"] == "cancelled"
    assert plan["result"]["outcome"] == "feasible" and plan["result"]["plan"]["pipelines"]


def test_a_given_up_search_is_neither_joined_nor_cached(either: TestClient) -> None:
    body = plan_body("endless", search={"seed": 9})
    first = post(either, body, prefer="wait=1").json()["id"]
    either.delete(f"/v1/plans/{first}")
    again = post(either, body, prefer="respond-async").json()["id"]
    assert again != first
    either.delete(f"/v1/plans/{again}")
    assert settled(either, first)["status"] == settled(either, again)["status"] == "cancelled"
    third = post(either, body, prefer="respond-async")
    assert third.status_code == 202
    either.delete(f"/v1/plans/{third.json()['id']}")
    settled(either, third.json()["id"])


def test_a_queued_plan_is_cancelled_at_once(either: TestClient) -> None:
    busy = post(either, plan_body("endless", search={"seed": 1}), prefer="wait=1").json()["id"]
    queued = post(either, plan_body("never-begun"), prefer="respond-async").json()["id"]
    answer = either.delete(f"/v1/plans/{queued}")
    assert answer.status_code == 200 and answer.json()["status"] == "cancelled"
    either.delete(f"/v1/plans/{busy}")
    settled(either, busy)
    assert post(either, plan_body("after")).status_code == 201
    assert searches(either, "never-begun") == 0


@pytest.mark.parametrize(("cluster", "status", "kind"), [("broken", 500, "internal"), ("mistaken", 500, "answer-refused"),
                                                         ("not-covered", 422, "not-plannable")])
def test_failures_are_told_and_never_cached(either: TestClient, cluster: str, status: int, kind: str) -> None:
    for n in (1, 2):
        answer = post(either, plan_body(cluster))
        assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"] == f"urn:shardwright:problem:{kind}"
        assert "secret" not in answer.text
        plan = either.get(answer.headers["location"]).json()
        assert plan["status"] == "failed" and plan["result"] is None and plan["error"] == answer.json()
        assert searches(either, cluster) == n


def test_a_killed_solver_process_is_replaced_and_the_job_fails_in_the_end(either: TestClient) -> None:
    answer = post(either, plan_body("deadly"), prefer="wait=30")
    assert answer.status_code == 500 and answer.json()["type"] == "urn:shardwright:problem:solver-died"
    assert searches(either, "deadly") == 3
    assert post(either, plan_body("alive-again")).status_code == 201


def test_listed_newest_first_by_cursor(either: TestClient) -> None:
    ids = [post(either, plan_body(f"list-{i}")).json()["id"] for i in range(5)]
    found: list[str] = []
    cursor = None
    while len(found) < 5:
        page = either.get("/v1/plans", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        assert len(page["items"]) == 2
        found += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert found[:5] == ids[::-1]
    line = either.get("/v1/plans", params={"limit": 1}).json()["items"][0]
    assert (line["status"], line["outcome"], line["cluster_name"], line["step_time_s"]) == ("succeeded", "optimal", "list-4", STEP_TIME_S)
    assert all(item["status"] == "failed" for item in either.get("/v1/plans", params={"status": "failed"}).json()["items"])


def test_events_tell_the_search_and_resume(either: TestClient) -> None:
    plan_id = post(either, plan_body("slow", search={"seed": 11}), prefer="respond-async").json()["id"]
    events = read_events(either.get(f"/v1/plans/{plan_id}/events").text)
    progress = [e for e in events if e["event"] == "progress"]
    assert len(progress) >= 3
    assert [int(e["id"]) for e in progress] == list(range(1, len(progress) + 1))
    assert {"incumbent_s", "bound_s", "gap", "phase"} <= set(orjson.loads(progress[0]["data"]))
    assert events[-1]["event"] == "done" and orjson.loads(events[-1]["data"])["status"] == "succeeded"
    rest = read_events(either.get(f"/v1/plans/{plan_id}/events", headers={"Last-Event-ID": progress[1]["id"]}).text)
    assert [e["id"] for e in rest if e["event"] == "progress"] == [e["id"] for e in progress[2:]]


def read_events(text: str) -> list[dict[str, str]]:
    blocks = [dict(line.split(": ", 1) for line in block.splitlines() if ": " in line) for block in text.split("\n\n")]
    return [b for b in blocks if "event" in b]


def test_unknown_plans(either: TestClient) -> None:
    for answer in (either.get("/v1/plans/none"), either.delete("/v1/plans/none"), either.get("/v1/plans/none/events"),
                   either.get("/v1/plans/none/exports"), either.get("/v1/plans/none/timeline")):
        assert answer.status_code == 404 and answer.json()["type"] == "urn:shardwright:problem:no-such-plan"


def test_idempotency_key(either: TestClient) -> None:
    first = post(either, plan_body("idem"), idempotency_key="k1", cache_control="no-cache")
    again = post(either, plan_body("idem"), idempotency_key="k1", cache_control="no-cache")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content and again.headers["location"] == first.headers["location"]
    assert again.headers["idempotent-replayed"] == "true" and searches(either, "idem") == 1
    other = post(either, plan_body("other"), idempotency_key="k1")
    assert other.status_code == 422 and other.json()["type"].endswith("idempotency-key-reused")
    assert post(either, plan_body("idem"), idempotency_key="has space").status_code == 400


def test_idempotency_key_in_use(either: TestClient) -> None:
    body = plan_body("slow", search={"seed": 12})
    first = threading.Thread(target=lambda: post(either, body, idempotency_key="k2"))
    first.start()
    time.sleep(0.5)
    busy = post(either, body, idempotency_key="k2")
    first.join()
    assert busy.status_code == 409 and busy.headers["retry-after"] == "1"
    assert post(either, body, idempotency_key="k2").status_code == 201


def test_a_bad_body_is_remembered_under_its_key_too(either: TestClient) -> None:
    answers = [post(either, plan_body("bad", objective="speed"), idempotency_key="k3") for _ in range(2)]
    assert [a.status_code for a in answers] == [422, 422]
    assert answers[0].json()["errors"][0]["pointer"] == "/objective"
