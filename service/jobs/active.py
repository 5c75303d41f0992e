"""How many jobs run right now, so that a stop can wait for them."""
import contextlib
import threading
from collections.abc import Iterator


class Active:
    """A counter that can be waited on to reach zero."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        with self._changed:
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout_s)
