"""Answering and solving apart, on one PostgreSQL."""
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.service.bodies import plan_body
from tests.service.test_crash import Server, wait_until


def test_an_api_and_two_workers(new_database: Callable[[str], str], tmp_path: Path) -> None:
    url = new_database(f"roles_{os.getpid()}_{time.time_ns()}")
    servers = {}
    try:
        for name, role in (("api", "api"), ("worker-1", "worker"), ("worker-2", "worker")):
            (tmp_path / name).mkdir()
            servers[name] = Server(tmp_path / name, url, role=role, executor_id=name)
        client = servers["api"].start()
        waiting = client.post("/v1/plans", json=plan_body("slow"), headers={"Prefer": "respond-async"}).json()
        assert waiting["status"] == "queued"
        worker = servers["worker-1"].start()
        servers["worker-2"].start()
        assert worker.get("/v1/plans").status_code == 404
        solved = client.post("/v1/plans", json=plan_body("slow", search={"seed": 1}), headers={"Prefer": "wait=20"})
        assert solved.status_code == 201
        wait_until(lambda: client.get(f"/v1/plans/{waiting['id']}").json()["status"] == "succeeded")
        assert sum(len(s.searchers()) for s in servers.values()) == 2 and not servers["api"].searchers()
    finally:
        for s in servers.values():
            s.end(signal.SIGKILL)


def test_another_worker_takes_up_the_plans_of_a_lost_one(new_database: Callable[[str], str], tmp_path: Path) -> None:
    url = new_database(f"lost_{os.getpid()}_{time.time_ns()}")
    servers = []
    for name in ("lost", "finder"):
        (tmp_path / name).mkdir()
        servers.append(Server(tmp_path / name, url, executor_id=name, WORKER_LOST_S="2"))
    lost, finder = servers
    try:
        plan = lost.start().post("/v1/plans", json=plan_body("slow"), headers={"Prefer": "respond-async"}).json()["id"]
        wait_until(lost.searchers)
        lost.end(signal.SIGKILL)
        client = finder.start()
        wait_until(lambda: client.get(f"/v1/plans/{plan}").json()["status"] == "succeeded")
        assert len(finder.searchers()) == 1
    finally:
        for s in servers:
            s.end(signal.SIGKILL)
