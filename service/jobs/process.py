"""A solver process: a child that solves one plan at a time, reports over a pipe, and dies with its parent.

The search holds its interpreter for long stretches; in a process of its own it cannot delay the answering of requests, and a crash or an
exhausted memory ends one job instead of the service.
"""
import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from service.jobs.port import Planner
from service.jobs.render import progress_body
from service.jobs.solve import Solved, solve
from solver.errors import InputError, JudgeError
from solver.search.result import Progress

REPORT_EVERY_S = 0.1
POLL_S = 0.1


class ProcessDied(Exception):
    """The solver process ended in the middle of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A job that raised: `faults` where the input is to blame, otherwise our own `message` for the log."""

    kind: str                                              # input | judge | bug
    message: str
    faults: tuple[Any, ...] = ()


@dataclass(slots=True)
class _Channel:
    """The child's side of the pipe."""

    connection: Connection
    lock: threading.Lock
    cancelled: threading.Event
    jobs: "queue.SimpleQueue[bytes]"

    def send(self, *message: Any) -> None:
        with self.lock:
            self.connection.send(message)

    def listen(self) -> None:
        """Take orders until the parent is gone, and then end at once, whatever the solver is doing."""
        try:
            while True:
                kind, payload = self.connection.recv()
                if kind == "solve":
                    self.cancelled.clear()
                    self.jobs.put(payload)
                elif kind == "cancel":
                    self.cancelled.set()
        except (EOFError, OSError):
            os._exit(0)


def child_main(connection: Connection, planner: Planner) -> None:
    """Entry of the child process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)            # a terminal's interrupt goes to the whole group; the parent decides
    channel = _Channel(connection, threading.Lock(), threading.Event(), queue.SimpleQueue())
    threading.Thread(target=channel.listen, daemon=True).start()
    with contextlib.suppress(ImportError):                  # a planner that cannot be loaded says so in its first job
        planner.warm()
    channel.send("ready", None)
    while True:
        channel.send("done", _run(planner, channel.jobs.get(), channel))


class _Reporter:
    """Sends every better plan, and anything else at most ten times a second; the last word is never lost."""

    def __init__(self, channel: _Channel) -> None:
        self.channel = channel
        self.sent_s = 0.0
        self.incumbent_s: float | None = None
        self.held: Progress | None = None

    def report(self, progress: Progress) -> None:
        self.held = progress
        if time.monotonic() - self.sent_s >= REPORT_EVERY_S or progress.incumbent_s != self.incumbent_s:
            self.flush()

    def flush(self) -> None:
        if self.held is not None:
            self.sent_s, self.incumbent_s = time.monotonic(), self.held.incumbent_s
            self.channel.send("progress", progress_body(self.held))
            self.held = None


def _run(planner: Planner, body: bytes, channel: _Channel) -> Solved | Failed:
    reporter = _Reporter(channel)
    try:
        solved = solve(planner, body, reporter.report, channel.cancelled.is_set)
        reporter.flush()
        return solved
    except InputError as e:
        return Failed(kind="input", message=str(e), faults=e.faults)
    except JudgeError as e:
        return Failed(kind="judge", message=str(e))
    except Exception:
        return Failed(kind="bug", message=traceback.format_exc())


class SolverProcess:
    """The parent's handle on one child."""

    def __init__(self, planner: Planner) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, child = context.Pipe()
        self._process = context.Process(target=child_main, args=(child, planner), daemon=True, name="solver")
        self._process.start()
        child.close()
        self.ready = False

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def receive(self, timeout_s: float) -> tuple[str, Any] | None:
        """The child's next message, if one comes in time. Raises `ProcessDied`."""
        try:
            message = self._connection.recv() if self._connection.poll(timeout_s) else None
        except (EOFError, OSError) as e:
            self._process.join(5)
            raise ProcessDied(f"the solver process ended with exit code {self._process.exitcode}") from e
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
        self._process.join(5)
        self._connection.close()

    def _send(self, kind: str, payload: Any) -> None:
        try:
            self._connection.send((kind, payload))
        except OSError as e:
            self._process.join(5)
            raise ProcessDied(f"the solver process ended with exit code {self._process.exitcode}") from e
