"""Health, metrics, catalogue, strategies, the reference."""
import pytest
from fastapi.testclient import TestClient
from jsonschema_rs import Draft202012Validator

from solver.domain.degrees import SCHEDULES, Strategy
from tests.service.bodies import estimate_body, plan_body


def test_health(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    client.post("/v1/plans", json=plan_body())
    ready = client.get("/readyz")
    assert ready.status_code == 200 and ready.json() == {"status": "ready", "checks": {"database": True, "solver": True}}


def test_metrics(client: TestClient) -> None:
    plan = client.post("/v1/plans", json=plan_body("metered")).json()["id"]
    client.get(f"/v1/plans/{plan}")
    text = client.get("/metrics").text
    assert 'shardwright_http_requests_total{method="GET",route="/v1/plans/{plan_id}",status="200"} ' in text
    assert 'shardwright_plans{status="succeeded"} ' in text
    assert plan not in text


@pytest.mark.parametrize(("route", "least"), [("gpus", 30), ("links", 5), ("models", 25)])
def test_catalogue(client: TestClient, route: str, least: int) -> None:
    body = client.get(f"/v1/catalog/{route}").json()
    assert len(body["items"]) >= least and body["version"]
    assert all(item["source"] for item in body["items"])


def test_strategies_list_every_schedule_and_lever(client: TestClient) -> None:
    body = client.get("/v1/strategies").json()
    assert [s["name"] for s in body["schedules"]] == list(SCHEDULES)
    assert [s["name"] for s in body["levers"]] == list(Strategy.__dataclass_fields__)
    assert all(s["priced"] for s in body["schedules"] if s["planned"])


def test_unknown_routes_and_parameters(client: TestClient) -> None:
    for answer, status, kind in ((client.get("/v1/batches"), 404, "not-found"), (client.post("/v1/curves", json={}), 404, "not-found"),
                                 (client.put("/v1/plans/x"), 405, "method-not-allowed"), (client.get("/v1/plans?limit=0"), 422, "bad-parameter"),
                                 (client.get("/v1/plans?cursor=x"), 422, "bad-parameter"), (client.get("/v1/plans/a%20b"), 422, "bad-parameter")):
        assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"] == f"urn:shardwright:problem:{kind}"


def test_answers_match_the_published_schemas(client: TestClient) -> None:
    api = client.get("/openapi.json").json()

    def check(name: str, body: object) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": api["components"]}
        errors = [f"{e.instance_path}: {e.message}" for e in Draft202012Validator(schema).iter_errors(body)]
        assert not errors

    check("PlanRequest", plan_body())
    check("EstimateRequest", estimate_body())
    check("PlanResource", client.post("/v1/plans", json=plan_body("schema")).json())
    check("EstimateAnswer", client.post("/v1/estimates", json=estimate_body()).json())
    check("ProblemAnswer", client.post("/v1/plans", json={}).json())
    check("PlanPage", client.get("/v1/plans").json())
    check("Catalogue", client.get("/v1/catalog/gpus").json())
    check("StrategyList", client.get("/v1/strategies").json())


def test_every_route_publishes_its_problems(client: TestClient) -> None:
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/v1/"):
                answers = operation["responses"]
                assert {"401", "404", "422", "500"} <= set(answers), (path, method)
                assert all("application/problem+json" in a["content"] for status, a in answers.items() if int(status) >= 400)


def test_the_reference_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs").text
    assert "POST /v1/plans" in page and "PlanRequest" in page
    assert "http://" not in page and "https://" not in page and "<script" not in page
