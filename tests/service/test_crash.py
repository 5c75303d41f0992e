"""The whole service is killed in the middle of a search; the next start takes the job up again. On both databases."""
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.bodies import plan_body

ROOT = Path(__file__).parents[2]


class Server:
    """A service that can be started, killed and started again over the same data."""

    def __init__(self, data_dir: Path, database_url: str | None, role: str = "all", executor_id: str = "crasher", **more: str) -> None:
        self.more = more
        self.data_dir, self.database_url, self.role, self.executor_id = data_dir, database_url, role, executor_id
        self.diary = data_dir / "diary"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> httpx.Client:
        settings = {"DATA_DIR": str(self.data_dir), "PORT": str(self.port), "WORKERS": "1", "QUEUE_POLL_S": "0.05",
                    "ROLE": self.role, "EXECUTOR_ID": self.executor_id, "SHUTDOWN_GRACE_S": "1"}
        settings |= self.more
        if self.database_url:
            settings["DATABASE_URL"] = self.database_url
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SHARDWRIGHT_")} | {f"SHARDWRIGHT_{k}": v for k, v in settings.items()}
        with (self.data_dir / "log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "tests.service.server", str(self.diary)], env=environment, cwd=ROOT, stderr=log)
        client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
        until_s = time.monotonic() + 30
        while time.monotonic() < until_s and self.process.poll() is None:
            try:
                if client.get("/readyz").status_code == 200:
                    return client
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError("the service did not start: " + (self.data_dir / "log").read_text()[-3000:])

    def end(self, how: int) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(how)
        self.process.wait(20)

    def searchers(self) -> list[int]:
        """Process ids of the solver processes that began a search, in order."""
        return [int(line.split()[1]) for line in self.diary.read_text().splitlines()] if self.diary.exists() else []


@pytest.fixture(params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    new_database: Callable[[str], str] | None = request.getfixturevalue("new_database") if request.param == "postgresql" else None
    s = Server(tmp_path, new_database(f"crash_{os.getpid()}_{time.time_ns()}") if new_database else None)
    yield s
    s.end(signal.SIGKILL)


def gone(pid: int, within_s: float = 5.0) -> bool:
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def wait_until(true: Callable[[], object], within_s: float = 15.0) -> None:
    until_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until_s, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_survives_the_end_of_the_service(server: Server, how: int) -> None:
    client = server.start()
    running = client.post("/v1/plans", json=plan_body("slow"), headers={"Prefer": "respond-async"}).json()["id"]
    queued = client.post("/v1/plans", json=plan_body("waits-its-turn"), headers={"Prefer": "respond-async"}).json()["id"]
    wait_until(server.searchers)
    time.sleep(0.7)                                        # so that some progress is stored
    server.end(how)
    assert gone(server.searchers()[0]), "the solver process outlived its parent"

    client = server.start()
    wait_until(lambda: client.get(f"/v1/plans/{queued}").json()["status"] == "succeeded")
    plan = client.get(f"/v1/plans/{running}").json()
    assert plan["status"] == "succeeded" and plan["result"]["outcome"] == "optimal"
    assert len(server.searchers()) == 3                    # the slow one twice, the queued one once
    hit = client.post("/v1/plans", json=plan_body("slow"))
    assert hit.status_code == 200 and hit.json()["id"] == running


def test_a_stopped_search_ends_soon_with_open_streams(server: Server) -> None:
    client = server.start()
    plan = client.post("/v1/plans", json=plan_body("endless"), headers={"Prefer": "respond-async"}).json()["id"]
    with client.stream("GET", f"/v1/plans/{plan}/events") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry:")
        begun_s = time.monotonic()
        server.end(signal.SIGTERM)
        assert time.monotonic() - begun_s < 8


def test_a_killed_solver_process_does_not_lose_the_job(server: Server) -> None:
    client = server.start()
    plan = client.post("/v1/plans", json=plan_body("slow"), headers={"Prefer": "respond-async"}).json()["id"]
    wait_until(server.searchers)
    os.kill(server.searchers()[0], signal.SIGKILL)
    wait_until(lambda: client.get(f"/v1/plans/{plan}").json()["status"] == "succeeded")
    assert len(server.searchers()) == 2
