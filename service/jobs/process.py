"""A solver process: a child that solves one plan at a time, reports over a pipe, and dies with its parent.

The search holds its interpreter for long stretches; in a process of its own it cannot delay the answering of requests, and a crash or an
exhausted memory ends one job instead of the service.
"""
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from service.jobs.port import Planner
from service.jobs.solve import Failed, Solved

POLL_S = 0.1
KILL_WAIT_S = 5.0


class ProcessDied(Exception):
    """The solver process ended in the middle of a job."""


class SolverProcess:
    """The parent's handle on one child."""

    def __init__(self, planner: Planner) -> None:
        self._connection, child = multiprocessing.Pipe()
        command = [sys.executable, "-m", "service.jobs.child", str(child.fileno())]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(command, pass_fds=[child.fileno()], stdin=subprocess.DEVNULL, env=environment)
        child.close()
        self.ready = False
        self._connection.send(planner)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def receive(self, timeout_s: float) -> tuple[str, Any] | None:
        """The child's next message, if one comes in time. Raises `ProcessDied`."""
        try:
            message = self._connection.recv() if self._connection.poll(timeout_s) else None
        except (EOFError, OSError) as e:
            raise self._death() from e
        if message is not None and message[0] == "ready":
            self.ready = True
            return None
        return message

    def solve(self, body: bytes, beat: Callable[[bytes | None], bool], time_limit_s: float, cancel_grace_s: float) -> Solved | Failed | None:
        """Run one job. `beat` gets the newest progress (or None) several times a second and says whether to go on.

        After a stop the child may take `cancel_grace_s` to hand over its best plan; then, or beyond `time_limit_s`, it is killed and the
        answer is None. Raises `ProcessDied`.
        """
        try:
            return self._solve(body, beat, time_limit_s, cancel_grace_s)
        except BaseException:
            self.kill()                                    # its state is unknown: a job may still be running in it
            raise

    def _solve(self, body: bytes, beat: Callable[[bytes | None], bool], time_limit_s: float, cancel_grace_s: float) -> Solved | Failed | None:
        self._send("solve", body)
        deadline_s: float | None = None
        cancelled = False
        while True:
            message = self.receive(POLL_S)
            if message is not None and message[0] == "done":
                return message[1]
            if self.ready and deadline_s is None:
                deadline_s = time.monotonic() + time_limit_s
            if not beat(message[1] if message is not None else None) and not cancelled:
                cancelled = True
                self._send("cancel", None)
                deadline_s = time.monotonic() + cancel_grace_s
            if deadline_s is not None and time.monotonic() > deadline_s:
                self.kill()
                return None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(KILL_WAIT_S)
        self._connection.close()

    def _death(self) -> ProcessDied:
        try:
            code = self._process.wait(KILL_WAIT_S)
        except subprocess.TimeoutExpired:                   # it closed its pipe but lives on: of no use any more
            self._process.kill()
            code = self._process.wait(KILL_WAIT_S)
        return ProcessDied(f"the solver process ended with exit code {code}")

    def _send(self, kind: str, payload: Any) -> None:
        try:
            self._connection.send((kind, payload))
        except OSError as e:
            raise self._death() from e
