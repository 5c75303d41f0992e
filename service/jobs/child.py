"""The child's side of a solver process: solve one plan at a time, report over a pipe, and die with the parent."""
import contextlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from service.jobs.port import Planner
from service.jobs.render import progress_body
from service.jobs.solve import Failed, Solved, solve
from solver.errors import InputError, JudgeError
from solver.search.result import Progress

REPORT_EVERY_S = 0.1


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


def main(connection: Connection) -> None:
    """Entry of the child process; the parent's first message is the planner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)            # a terminal's interrupt goes to the whole group; the parent decides
    planner: Planner = connection.recv()
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


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
