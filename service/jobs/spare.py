"""A spare process beside a solver process, for solves that do not depend on each other. It dies with the process that made it."""
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
PR_SET_PDEATHSIG = 1


def _die_with_parent(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":                             # elsewhere an orphan ends when its solve does
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:                              # it died before it could be tied to
        os._exit(0)


class SpareProcess(Executor):
    """One process, made at the first submission and kept; `release` ends it if it is still busy with what nobody waits for."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_die_with_parent,
                                             initargs=(os.getpid(),))
        future = self._pool.submit(fn, *args, **kwargs)
        self._futures.append(future)
        return future

    def release(self) -> None:
        """Forget what was submitted."""
        busy = [f for f in self._futures if not f.done()]
        self._futures.clear()
        if busy and self._pool is not None:
            processes = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
            self._pool = None
