"""Malformed bodies: each gets a 4xx problem document that names the field and what would be legal, quickly, and the service lives."""
import copy
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.bodies import estimate_body, plan_body

Change = Callable[[dict[str, Any]], Any]
PLAN = {"pipelines": [{"micro_batches": 1, "stages": [{"layers": [[0, 3]], "devices": [{"node_group": "a", "node": 0, "gpus": [0]}]}]}]}


def put(*path: Any) -> Change:
    """Sets the value at the end of `path` to its last element."""
    *keys, last, value = path

    def change(body: dict[str, Any]) -> None:
        at: Any = body
        for key in keys:
            at = at[key]
        at[last] = value
    return change


def drop(*path: Any) -> Change:
    *keys, last = path

    def change(body: dict[str, Any]) -> None:
        at: Any = body
        for key in keys:
            at = at[key]
        del at[last]
    return change


ARCH = ("model", "architecture")
GROUP = ("cluster", "node_groups", 0)
# name, change, pointer of the fault, words that must stand in `legal`, status
STRUCTURED: list[tuple[str, Change, str, str, int]] = [
    ("layers as text", put(*ARCH, "num_layers", "four"), "/model/architecture/num_layers", "an integer from 1 to 4096", 422),
    ("layers as text of digits", put(*ARCH, "num_layers", "4"), "/model/architecture/num_layers", "an integer from 1 to 4096", 422),
    ("negative layers", put(*ARCH, "num_layers", -1), "/model/architecture/num_layers", "from 1 to 4096", 422),
    ("a billion layers", put(*ARCH, "num_layers", 10**9), "/model/architecture/num_layers", "from 1 to 4096", 422),
    ("half a layer", put(*ARCH, "num_layers", 2.5), "/model/architecture/num_layers", "an integer", 422),
    ("true layers", put(*ARCH, "num_layers", True), "/model/architecture/num_layers", "an integer", 422),
    ("no hidden size", drop(*ARCH, "hidden_size"), "/model/architecture/hidden_size", "an integer from 1 to 1000000", 422),
    ("heads that do not divide", put(*ARCH, "num_kv_heads", 3), "/model/architecture/num_kv_heads", "a divisor of 4", 422),
    ("misspelt key", put(*ARCH, "hiden_size", 64), "/model/architecture/hiden_size", "hidden_size", 422),
    ("unknown kind of model", put(*ARCH, "kind", "mamba"), "/model/architecture/kind", "decoder", 422),
    ("two models", put("model", "preset", "llama-3.1-8b"), "/model", "one of preset, hf_config, architecture", 422),
    ("no model", drop("model"), "/model", "hf_config", 422),
    ("model as text", put("model", "llama"), "/model", "an object", 422),
    ("config as a list", put("model", {"hf_config": []}), "/model/hf_config", "an object", 422),
    ("unknown GPU", put(*GROUP, "gpu", "B9000"), "/cluster/node_groups/0/gpu", "A100", 422),
    ("GPU as a number", put(*GROUP, "gpu", 5), "/cluster/node_groups/0/gpu", "a string", 422),
    ("inline GPU with an unknown key", put(*GROUP, "gpu", {"name": "x", "based_on": "A100", "tflops": 3}), "/cluster/node_groups/0/gpu/tflops",
     "bf16_tflops", 422),
    ("inline GPU with negative memory", put(*GROUP, "gpu", {"name": "x", "based_on": "A100", "memory_gib": -80}),
     "/cluster/node_groups/0/gpu/memory_gib", "above 0", 422),
    ("no nodes", put(*GROUP, "nodes", 0), "/cluster/node_groups/0/nodes", "from 1 to 100000", 422),
    ("negative bandwidth", put(*GROUP, "network", {"bandwidth_gb_s": -1}), "/cluster/node_groups/0/network/bandwidth_gb_s", "above 0", 422),
    ("a name with a blank", put(*GROUP, "name", "a b"), "/cluster/node_groups/0/name", "[A-Za-z0-9]", 422),
    ("a name that is a path", put(*GROUP, "name", "../../etc/passwd"), "/cluster/node_groups/0/name", "[A-Za-z0-9]", 422),
    ("no node groups", put("cluster", "node_groups", []), "/cluster/node_groups", "1 to 64", 422),
    ("node groups as an object", put("cluster", "node_groups", {"a": 1}), "/cluster/node_groups", "an array", 422),
    ("a thousand node groups", put("cluster", "node_groups", [{"name": f"g{i}", "nodes": 1, "gpu": "A100"} for i in range(1000)]),
     "/cluster/node_groups", "1 to 64", 422),
    ("a link with one end", put("cluster", "links", [{"between": ["a"], "bandwidth_gb_s": 1}]), "/cluster/links/0/between/1", "a string", 422),
    ("a link of two speeds", put("cluster", "links", [{"between": ["a", "b"], "bandwidth_gb_s": 1, "total_bandwidth_gb_s": 1}]),
     "/cluster/links/0/bandwidth_gb_s", "one of the two", 422),
    ("key in a link", put("cluster", "links", [{"between": ["a", "b"], "bandwidth_gbps": 1}]),
     "/cluster/links/0/bandwidth_gbps", "bandwidth_gb_s", 422),
    ("unknown kind of workload", put("workload", "kind", "dreaming"), "/workload/kind", "training", 422),
    ("no batch", drop("workload", "global_batch_size"), "/workload/global_batch_size", "an integer from 1", 422),
    ("negative batch", put("workload", "global_batch_size", -8), "/workload/global_batch_size", "from 1 to", 422),
    ("unknown precision", put("workload", "precision", "int3"), "/workload/precision", "bf16", 422),
    ("unknown optimizer", put("workload", "optimizer", "adamax"), "/workload/optimizer", "adafactor", 422),
    ("optimizer as a list", put("workload", "optimizer", [1]), "/workload/optimizer", "adam", 422),
    ("optimizer of too many bytes", put("workload", "optimizer", {"bytes_per_parameter": 1000}),
     "/workload/optimizer/bytes_per_parameter", "to 64", 422),
    ("unknown key at the top", put("objektive", "throughput"), "/objektive", "workload", 422),
    ("null workload", put("workload", None), "/workload", "an object", 422),
    ("null where a number is needed", put("workload", "seq_len", None), "/workload/seq_len", "an integer", 422),
    ("a key to be escaped", put("cluster", "a/b~c", 1), "/cluster/a~1b~0c", "node_groups", 422),
]
PLANS_ONLY: list[tuple[str, Change, str, str, int]] = [
    ("unknown objective", put("objective", "speed"), "/objective", "throughput", 422),
    ("constraint on nothing", put("constraints", {"tp": []}), "/constraints/tp", "1 to 256", 422),
    ("constraint of zero", put("constraints", {"tp": [1, 0]}), "/constraints/tp/1", "from 1 to", 422),
    ("unknown schedule", put("constraints", {"schedules": ["1f2b"]}), "/constraints/schedules/0", "1f1b", 422),
    ("endless search", put("search", {"time_limit_s": 10**7}), "/search/time_limit_s", "to 3600", 422),
    ("longer than this service allows", put("search", {"time_limit_s": 3000}), "/search/time_limit_s", "to 600", 422),
]
ESTIMATES_ONLY: list[tuple[str, Change, str, str, int]] = [
    ("no layout", drop("strategy"), "/strategy", "strategy or plan", 422),
    ("two layouts", put("plan", PLAN), "/strategy", "strategy or plan", 422),
    ("tp of zero", put("strategy", {"tp": 0}), "/strategy/tp", "from 1 to", 422),
    ("unknown recompute", put("strategy", {"recompute": "some"}), "/strategy/recompute", "selective", 422),
    ("margin beyond sense", put("memory_margin", 2), "/memory_margin", "to 0.9", 422),
]
FIRST = json.dumps(plan_body())[:-1]
# name, bytes, status, pointer, word of the whole document
RAW: list[tuple[str, bytes, int, str | None, str]] = [
    ("nothing", b"", 400, "", "empty"),
    ("blanks", b" \n ", 400, "", "empty"),
    ("not JSON", b"model: llama", 400, "", "line 1, column 1"),
    ("cut short", FIRST.encode(), 400, "", "not valid JSON"),
    ("two values", b"{} {}", 400, "", "Extra data"),
    ("an array", b"[]", 422, "", "a JSON object"),
    ("a string", b'"plan"', 422, "", "a JSON object"),
    ("null", b"null", 422, "", "a JSON object"),
    ("NaN", b'{"model": {"architecture": {"num_layers": NaN}}}', 400, "/model/architecture/num_layers", "finite"),
    ("minus infinity", b'{"workload": [0, -Infinity]}', 400, "/workload/1", "finite"),
    ("beyond floats", b'{"memory_margin": 1e999}', 400, "/memory_margin", "finite"),
    ("ten thousand digits", b'{"memory_margin": ' + b"9" * 10_000 + b"}", 400, "/memory_margin", "integers from"),
    ("twenty digits", b'{"model": {"hf_config": {"hidden_size": 99999999999999999999}}}', 400, "/model/hf_config/hidden_size", "integers from"),
    ("not UTF-8", b'{"model": "\xff\xfe"}', 400, "", "UTF-8"),
    ("UTF-16", json.dumps(plan_body()).encode("utf-16"), 400, "", "UTF-8"),
    ("half a character", b'{"model": {"hf_config": {"name": "\\ud800"}}}', 400, "/model/hf_config/name", "surrogate"),
    ("half a character in a key", b'{"a": [{"\\udfff": 1}]}', 400, "/a/0", "surrogate"),
    ("the same key twice", b'{"cluster": {"name": "a", "name": "b"}}', 400, "/cluster/name", "more than once"),
    ("nested deeply", b'{"model": {"hf_config": ' + b'{"a":' * 60 + b"1" + b"}" * 60 + b"}}", 400, "", "48 levels"),
    ("nested without bottom", b"[" * 500_000, 400, "", "nested"),
    ("millions of arrays", b'{"model": [' + b"[]," * 1_100_000 + b"1]}", 400, "", "1000000"),
    ("a hundred thousand unknown keys", b"{" + b",".join(b'"k%d":1' % i for i in range(100_000)) + b"}", 422, "/k0", "workload"),
    ("quotes without end", b'"' + b'\\"' * 500_000, 400, "", "not valid JSON"),
]


def judge(client: TestClient, answer: Any, begun_s: float, status: int, pointer: str | None, words: str) -> None:
    assert time.process_time() - begun_s < 2.0
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"].startswith("urn:shardwright:problem:") and problem["status"] == status and problem["title"] and problem["detail"]
    if pointer is not None:
        faults = {e["pointer"]: e for e in problem["errors"]}
        assert pointer in faults, problem
        assert faults[pointer]["message"] and faults[pointer]["legal"]
        assert words in faults[pointer]["legal"] or words in faults[pointer]["message"], faults[pointer]
    else:
        assert words in problem["detail"], problem
    assert client.get("/healthz").status_code == 200


def changed(body: dict[str, Any], change: Change) -> dict[str, Any]:
    body = copy.deepcopy(body)
    change(body)
    return body


@pytest.mark.parametrize(("change", "pointer", "legal", "status"), [pytest.param(*case[1:], id=case[0]) for case in STRUCTURED + PLANS_ONLY])
def test_bad_plan_requests(client: TestClient, change: Change, pointer: str, legal: str, status: int) -> None:
    begun_s = time.process_time()
    judge(client, client.post("/v1/plans", json=changed(plan_body(), change)), begun_s, status, pointer, legal)


@pytest.mark.parametrize(("change", "pointer", "legal", "status"), [pytest.param(*case[1:], id=case[0]) for case in STRUCTURED + ESTIMATES_ONLY])
def test_bad_estimate_requests(client: TestClient, change: Change, pointer: str, legal: str, status: int) -> None:
    begun_s = time.process_time()
    judge(client, client.post("/v1/estimates", json=changed(estimate_body(), change)), begun_s, status, pointer, legal)


@pytest.mark.parametrize("route", ["/v1/plans", "/v1/estimates"])
@pytest.mark.parametrize(("raw", "status", "pointer", "words"), [pytest.param(*case[1:], id=case[0]) for case in RAW])
def test_bytes_that_are_no_request(client: TestClient, route: str, raw: bytes, status: int, pointer: str | None, words: str) -> None:
    begun_s = time.process_time()
    judge(client, client.post(route, content=raw, headers={"Content-Type": "application/json"}), begun_s, status, pointer, words)


@pytest.mark.parametrize("route", ["/v1/plans", "/v1/estimates"])
class TestEnvelope:
    """What is wrong before the content is looked at."""

    @pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
                                       "application/json; charset=utf-16", ""])
    def test_media_type(self, client: TestClient, route: str, media: str) -> None:
        begun_s = time.process_time()
        judge(client, client.post(route, content=json.dumps(plan_body()), headers={"Content-Type": media}), begun_s, 415, None, "application/json")

    def test_compressed(self, client: TestClient, route: str) -> None:
        begun_s = time.process_time()
        answer = client.post(route, content=b"\x1f\x8b", headers={"Content-Type": "application/json", "Content-Encoding": "gzip"})
        judge(client, answer, begun_s, 415, None, "no Content-Encoding")

    def test_a_hundred_megabytes(self, client: TestClient, route: str) -> None:
        begun_s = time.process_time()
        answer = client.post(route, content=b" " * 10**8, headers={"Content-Type": "application/json"})
        judge(client, answer, begun_s, 413, None, "at most 8388608 bytes")

    def test_a_hundred_megabytes_in_chunks(self, client: TestClient, route: str) -> None:
        begun_s = time.process_time()
        chunks = (b" " * 100_000 for _ in range(1000))
        answer = client.post(route, content=chunks, headers={"Content-Type": "application/json"})
        judge(client, answer, begun_s, 413, None, "at most 8388608 bytes")

    def test_wrong_method(self, client: TestClient, route: str) -> None:
        begun_s = time.process_time()
        judge(client, client.put(route, json=plan_body()), begun_s, 405, None, "POST")


def test_every_fault_is_told_at_once(client: TestClient) -> None:
    body = plan_body(objective="speed", colour="red")
    body["model"]["architecture"]["num_layers"] = 0
    body["workload"]["seq_len"] = -1
    pointers = {e["pointer"] for e in client.post("/v1/plans", json=body).json()["errors"]}
    assert pointers == {"/objective", "/colour", "/model/architecture/num_layers", "/workload/seq_len"}


def test_the_array_around_a_fault_is_not_at_fault(client: TestClient) -> None:
    body = plan_body()
    body["cluster"]["node_groups"] = [{**body["cluster"]["node_groups"][0], "nodes": 0}]
    assert [e["pointer"] for e in client.post("/v1/plans", json=body).json()["errors"]] == ["/cluster/node_groups/0/nodes"]
    body["cluster"]["node_groups"] = []
    (fault,) = client.post("/v1/plans", json=body).json()["errors"]
    assert (fault["pointer"], fault["message"]) == ("/cluster/node_groups", "an array of 0 entries") and "1 to 64" in fault["legal"]


def test_a_misspelt_key_is_answered_with_the_right_one(client: TestClient) -> None:
    body = plan_body()
    body["workload"]["globel_batch_size"] = 8
    fault = client.post("/v1/plans", json=body).json()["errors"][0]
    assert "did you mean 'global_batch_size'" in fault["message"]


def test_unions_complain_once(client: TestClient) -> None:
    body = plan_body()
    body["workload"]["seq_len"] = "long"
    assert [e["pointer"] for e in client.post("/v1/plans", json=body).json()["errors"]] == ["/workload/seq_len"]


def test_many_faults_are_cut_off(client: TestClient) -> None:
    body = plan_body()
    body["model"]["architecture"] |= {f"key{i}": i for i in range(5000)}
    assert len(client.post("/v1/plans", json=body).json()["errors"]) == 100
