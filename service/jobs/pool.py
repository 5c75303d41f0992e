"""Solver processes, kept alive and warm; dead ones are replaced."""
import contextlib
import queue
import threading
from collections.abc import Iterator

from service.jobs.port import Planner
from service.jobs.process import ProcessDied, SolverProcess


class SolverPool:
    """`size` processes that each serve one job at a time."""

    def __init__(self, planner: Planner, size: int) -> None:
        self._planner = planner
        self._free: queue.SimpleQueue[SolverProcess] = queue.SimpleQueue()
        self._all: set[SolverProcess] = set()
        self._lock = threading.Lock()
        self._closed = False
        for _ in range(size):
            self._free.put(self._launch())

    @contextlib.contextmanager
    def process(self) -> Iterator[SolverProcess]:
        """Borrow a live process, waiting until one is free."""
        process = self._free.get()
        try:
            if not process.alive:
                process = self._replace(process)
            yield process
        finally:
            if not process.alive and not self._closed:
                process = self._replace(process)
            self._free.put(process)

    @property
    def pids(self) -> list[int]:
        with self._lock:
            return [p.pid for p in self._all]

    def is_ready(self) -> bool:
        """Whether a process has finished warming up."""
        with self._lock:
            processes = list(self._all)
        for p in processes:
            if p.ready:
                return True
        return self._look_at_idle()

    def _look_at_idle(self) -> bool:
        """Take the first message of an idle process, which says that it is warm."""
        try:
            process = self._free.get_nowait()
        except queue.Empty:
            return False
        try:
            process.receive(0)
        except ProcessDied:
            process = self._replace(process)
        finally:
            self._free.put(process)
        return process.ready

    def close(self) -> None:
        with self._lock:
            self._closed = True
            processes = list(self._all)
        for p in processes:
            p.kill()

    def _launch(self) -> SolverProcess:
        process = SolverProcess(self._planner)
        with self._lock:
            self._all.add(process)
        return process

    def _replace(self, dead: SolverProcess) -> SolverProcess:
        with self._lock:
            self._all.discard(dead)
        return self._launch()
