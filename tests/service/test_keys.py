"""API keys: what needs one, what a key opens, and that it shows nowhere."""
import base64
import hashlib
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from service.settings import Settings
from tests.service.bodies import plan_body
from tests.service.conftest import opened

KEYS = {"anna": "anna-key-0123456789", "bert": "bert-key-0123456789"}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with two keys, one of them configured by its digest."""
    keys = f"{KEYS['anna']}, sha256:{hashlib.sha256(KEYS['bert'].encode()).hexdigest()}"
    with opened(tmp_path_factory.mktemp("locked"), api_keys=keys) as c:
        yield c


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[name]}"}


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer"}, {"Authorization": "Basic !!"},
                                    {"Authorization": KEYS["anna"]}, {"Authorization": "Bearer sha256:" + hashlib.sha256(b"x").hexdigest()}])
@pytest.mark.parametrize("path", ["/v1/plans", "/v1/catalog/gpus", "/metrics", "/docs", "/openapi.json", "/"])
def test_without_a_key_nothing_but_health(locked: TestClient, path: str, header: dict[str, str]) -> None:
    answer = locked.get(path, headers=header)
    assert answer.status_code == 401 and answer.json()["type"] == "urn:shardwright:problem:key-needed"
    assert "Bearer" in answer.headers["www-authenticate"]
    assert locked.get("/healthz", headers=header).status_code == 200


def test_keys_open_and_plans_are_ones_own(locked: TestClient) -> None:
    first = locked.post("/v1/plans", json=plan_body(), headers=bearer("anna"))
    assert first.status_code == 201
    second = locked.post("/v1/plans", json=plan_body(), headers=bearer("bert"))
    assert second.status_code == 201 and second.json()["id"] != first.json()["id"]
    assert locked.get(first.headers["location"], headers=bearer("bert")).status_code == 404
    assert locked.delete(first.headers["location"], headers=bearer("bert")).status_code == 404
    assert [i["id"] for i in locked.get("/v1/plans", headers=bearer("bert")).json()["items"]] == [second.json()["id"]]
    assert locked.post("/v1/plans", json=plan_body(), headers=bearer("anna")).status_code == 200


def test_a_browser_may_give_the_key_as_a_password(locked: TestClient) -> None:
    credentials = base64.b64encode(f"any:{KEYS['anna']}".encode()).decode()
    assert locked.get("/v1/plans", headers={"Authorization": f"Basic {credentials}"}).status_code == 200


def test_keys_do_not_show() -> None:
    settings = Settings(api_keys="very-secret", database_url="postgresql://me:pass@db/x")
    assert "very-secret" not in repr(settings) and "pass" not in repr(settings)
