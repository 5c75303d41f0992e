"""Hosts, origins, and the headers that go with every answer."""
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from service.settings import Settings
from tests.service.bodies import plan_body


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::2]"])
def test_foreign_host(client: TestClient, host: str) -> None:
    answer = client.get("/v1/plans", headers={"Host": host})
    assert answer.status_code == 421 and "SHARDWRIGHT_ALLOWED_HOSTS" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000"])
def test_own_host(client: TestClient, host: str) -> None:
    assert client.get("/v1/plans", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:9999"},
                                     {"Sec-Fetch-Site": "cross-site"}])
def test_foreign_pages_may_not_send(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.post("/v1/plans", json=plan_body(), headers=headers)
    assert answer.status_code == 403 and answer.json()["type"] == "urn:shardwright:problem:foreign-origin"


@pytest.mark.parametrize("headers", [{"Origin": "http://127.0.0.1"}, {"Sec-Fetch-Site": "same-origin"}, {}])
def test_own_pages_may_send(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/v1/plans", json=plan_body(), headers=headers).status_code in (200, 201)


def test_every_answer_is_hardened(client: TestClient) -> None:
    for path in ("/healthz", "/v1/plans", "/nowhere", "/docs"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and "frame-ancestors 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "planner.example"])
def test_an_open_port_without_keys_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match="SHARDWRIGHT_ALLOW_REMOTE"):
        Settings(host=host)
    assert Settings(host=host, allow_remote=True).host == host
    assert Settings(host=host, api_keys="k").host == host
