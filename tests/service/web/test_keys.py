"""Pages where keys are configured: a browser asks for the key as a password."""

from pathlib import Path

from tests.service.conftest import opened
from tests.service.web.test_adapter import FORM


def test_nothing_of_a_plan_for_who_does_not_hold_its_key(tmp_path: Path) -> None:
    with opened(tmp_path, api_keys=("first-key-of-two", "second-key-of-two")) as client:
        path = client.post("/plans", data=FORM, auth=("", "first-key-of-two"), follow_redirects=False).headers["location"]
        assert client.get(path).status_code == 401
        assert client.get(path, auth=("", "second-key-of-two")).status_code == 404
        assert client.get(path, auth=("", "first-key-of-two")).status_code == 200
