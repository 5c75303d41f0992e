"""The pages as text: what a browser without scripts gets, and what may never be in them."""

import html
import re
import shlex
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.service.web.fake import CANCELLED, DONE, FAILED, INFEASIBLE, LARGE, RUNNING, FakeBackend, fake_app

PATHS = [
    "/",
    "/?example=llama-3.1-70b-h100-a100",
    "/?example=nothing",
    "/plans",
    "/catalog",
    "/catalog?q=h200",
    "/plans/nothing",
    *(f"/plans/{i}" for i in (DONE, RUNNING, INFEASIBLE, FAILED, CANCELLED, LARGE)),
]
FORM = {
    "model_kind": "preset",
    "preset": "llama-3.1-8b",
    "cluster_name": "c",
    "seq_len": "4096",
    "global_batch_size": "64",
    "group.0.name": "g",
    "group.0.gpu": "H100-SXM5-80GB",
    "group.0.nodes": "1",
    "group.0.gpus_per_node": "8",
}


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def client(backend: FakeBackend) -> Iterator[TestClient]:
    with TestClient(fake_app(backend), follow_redirects=False) as c:
        yield c


@pytest.mark.parametrize("path", PATHS)
def test_no_inline_script_or_style_and_nothing_from_elsewhere(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == (404 if path == "/plans/nothing" else 200)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", answer.text)
    assert not re.search(r"(?:src|href|action|hx-get|hx-post|sse-connect)=\"(?:https?:)?//", answer.text)


def test_a_good_form_leads_to_its_plan(client: TestClient, backend: FakeBackend) -> None:
    answer = client.post("/plans", data=FORM)
    assert answer.status_code == 303
    assert client.get(answer.headers["location"]).status_code == 200
    assert backend.bodies == [
        {
            "model": {"preset": "llama-3.1-8b"},
            "workload": {"kind": "training", "seq_len": 4096, "global_batch_size": 64},
            "cluster": {"name": "c", "node_groups": [{"name": "g", "gpu": "H100-SXM5-80GB", "nodes": 1, "gpus_per_node": 8}]},
        }
    ]


def test_a_bad_form_comes_back_with_what_was_typed_and_what_is_wrong(client: TestClient, backend: FakeBackend) -> None:
    answer = client.post("/plans", data=FORM | {"seq_len": "<b>long</b>", "group.0.nodes": "0"})
    assert answer.status_code == 422
    assert "2 things to correct" in answer.text
    assert 'id="fault-seq_len"' in answer.text
    assert 'id="fault-group-0-nodes"' in answer.text
    assert 'value="&lt;b&gt;long&lt;/b&gt;"' in answer.text
    assert "<b>long" not in answer.text
    assert backend.bodies == []


def test_a_blank_form_keeps_memory_free(client: TestClient) -> None:
    text = client.get("/").text
    assert 'name="memory_margin" value="0.08"' in text
    assert "even to the last byte" in text


def test_checking_asks_for_no_plan(client: TestClient, backend: FakeBackend) -> None:
    assert "Nothing is wrong" in client.post("/form", data=FORM | {"action": "check"}).text
    assert "1 thing to correct" in client.post("/form", data=FORM | {"action": "check", "extra": "{"}).text
    assert backend.bodies == []


def test_an_uploaded_config_is_taken_for_the_model(client: TestClient, backend: FakeBackend) -> None:
    answer = client.post("/plans", data=FORM, files={"config_file": ("config.json", b'{"model_type": "llama"}')})
    assert answer.status_code == 303
    assert backend.bodies[0]["model"] == {"hf_config": {"model_type": "llama"}}


def test_the_result_says_everything(client: TestClient) -> None:
    text = client.get(f"/plans/{DONE}").text
    for said in (
        "Optimal: 24.1 s per step",
        "174k",
        "43.7 %",
        "$201.60",
        "A100-SXM4-80GB",
        "h100 alone",
        "Best uniform layout",
        "8.0 % slower",
        "memory.over",
        "A100-SXM4-80GB is taken",
        f"/v1/plans/{DONE}/exports/megatron",
        f"/v1/plans/{DONE}/timeline",
        "DeepSpeed cannot express",
        "120 ms",
        'id="tip-risk">It is predicted to fit',
    ):
        assert said in text, said


def test_an_infeasible_problem_gets_reasons_and_the_way_out(client: TestClient) -> None:
    text = client.get(f"/plans/{INFEASIBLE}").text
    for said in ("No layout fits", "131.0 GiB", "Use at least 32 GPUs.", "With 4 nodes instead of 1 it fits.", "88.2 s"):
        assert said in text, said
    assert "/exports/" not in text


def test_other_ends(client: TestClient) -> None:
    assert "may be out of memory" in client.get(f"/plans/{FAILED}").text
    assert "stopped before it had found a layout" in client.get(f"/plans/{CANCELLED}").text


def test_a_running_plan_refreshes_itself_without_scripts(client: TestClient) -> None:
    text = client.get(f"/plans/{RUNNING}").text
    assert '<noscript><meta http-equiv="refresh" content="3"></noscript>' in text
    assert f'sse-connect="/plans/{RUNNING}/live"' in text


def test_live_ends_by_sending_the_page_for_the_result(client: TestClient) -> None:
    text = client.get(f"/plans/{DONE}/live").text
    assert f'data: <div hx-get="/plans/{DONE}"' in text
    assert text.endswith("event: done\ndata: \n\n")
    assert client.get("/plans/nothing/live").status_code == 404


def test_cancelling_goes_back_to_the_plan(client: TestClient, backend: FakeBackend) -> None:
    answer = client.post(f"/plans/{RUNNING}/cancel")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/plans/{RUNNING}")
    assert backend.cancelled == {RUNNING}


def test_the_command_quotes_what_the_shell_would_take_for_its_own(client: TestClient) -> None:
    text = html.unescape(client.post("/form", data=FORM | {"preset": "it's $HOME"}).text)
    command = re.search(r'<code id="curl">(.*?)</code>', text, re.S)
    assert command is not None
    assert '"preset": "it\'s $HOME"' in shlex.split(command[1])[-1]


def test_the_catalogue_is_filtered(client: TestClient) -> None:
    text = client.get("/catalog?q=h200").text
    assert "H200" in text
    assert "A100-SXM4-40GB" not in text
    assert "No GPU matches." in client.get("/catalog?q=nosuchthing").text


def test_pages_of_sixteen_thousand_gpus_stay_small(client: TestClient) -> None:
    assert len(client.get(f"/plans/{LARGE}").content) < 200_000
