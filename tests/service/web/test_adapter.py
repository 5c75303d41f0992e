"""The pages on the real service: queue, database and solver process, with a planner that does as it is told."""

import re
import time
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from service.jobs import exporting
from tests.service.conftest import opened
from tests.service.web.fake import trace_of

FORM = {
    "model_kind": "dimensions",
    "arch_name": "tiny",
    "num_layers": "4",
    "hidden_size": "64",
    "ffn_hidden_size": "128",
    "num_attention_heads": "4",
    "vocab_size": "1000",
    "seq_len": "128",
    "global_batch_size": "8",
    "group.0.name": "a",
    "group.0.nodes": "1",
    "group.0.gpu": "A100",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with opened(tmp_path_factory.mktemp("pages"), max_event_streams=1) as client:
        yield client


@pytest.fixture(autouse=True)
def _exports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner's plan is no plan that an exporter could check: what they say is not the matter here."""
    monkeypatch.setattr(exporting, "targets", lambda problem, plan: {"megatron": ()})
    monkeypatch.setattr(exporting, "timeline", lambda problem, plan: trace_of(1, 8))


def ask(service: TestClient, cluster: str) -> str:
    answer = service.post("/plans", data=FORM | {"cluster_name": cluster}, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def finished(service: TestClient, path: str) -> str:
    until = time.monotonic() + 30
    while "sse-connect" in (text := service.get(path).text) and time.monotonic() < until:
        time.sleep(0.05)
    return text


def test_from_form_to_result(service: TestClient) -> None:
    path = ask(service, "quick")
    text = finished(service, path)
    for said in ("tiny on quick", "Optimal: 300 ms per step", "Best uniform layout", "66.7 %", "25 GB/s, as is usual", f"/v1{path}/exports/megatron"):
        assert said in text, said
    assert ask(service, "quick") == path  # the same question has the same answer


def test_faults_come_from_the_parser_of_the_api(service: TestClient) -> None:
    answer = service.post("/plans", data=FORM | {"seq_len": "many", "group.0.gpu": "B9000"})
    assert answer.status_code == 422
    assert "an integer from 1 to 16777216" in answer.text
    answer = service.post("/plans", data=FORM | {"group.0.gpu": "B9000"})
    assert "&#39;B9000&#39; is not in the catalogue" in answer.text
    assert 'id="fault-group-0-gpu"' in answer.text


def test_progress_is_sent_while_it_searches_and_a_stop_keeps_the_best(service: TestClient) -> None:
    path = ask(service, "endless")
    until = time.monotonic() + 30
    while "Best so far" not in (text := service.get(path).text) and time.monotonic() < until:
        time.sleep(0.05)
    assert "sse-connect" in text
    assert "Stop, and keep the best plan so far" in text
    service.post(f"{path}/cancel", follow_redirects=False)
    text = service.get(f"{path}/live").text
    assert text.endswith("event: done\ndata: \n\n")
    assert "Best found: 300 ms per step" in finished(service, path)
    assert "stopped early" in service.get(path).text


def test_failure_in_words(service: TestClient) -> None:
    assert "Something went wrong on our side" in finished(service, ask(service, "broken"))


def test_the_list_has_them_all(service: TestClient) -> None:
    path = ask(service, "listed")
    finished(service, path)
    text = service.get("/plans").text
    assert re.search(rf'href="{path}".*?tiny on listed.*?succeeded.*?optimal.*?300 ms', text, re.S)


def test_of_streams_there_are_only_so_many(service: TestClient) -> None:
    path = ask(service, "many")
    streams = service.app.state.streams
    with streams.one():
        answer = service.get(f"{path}/live")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert streams.open == 0


def test_a_form_of_another_site_is_refused(service: TestClient) -> None:
    answer = service.post("/plans", data=FORM, headers={"Origin": "https://elsewhere.example"})
    assert answer.status_code == 403
