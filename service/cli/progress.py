"""A running search on the error stream: best plan so far, bound, gap."""
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from service.cli.words import percent, seconds
from solver.search.result import Progress


class Watch:
    """Shows progress, and turns the first interrupt into a wish to stop with the best plan so far."""

    def __init__(self, console: Console) -> None:
        self._console, self._stop = console, False
        self._best: float | None = None
        self._spinner = Spinner("dots", text="starting")

    def report(self, progress: Progress) -> None:
        """Called by the search."""
        self._spinner.update(text=line(progress))
        if not self._console.is_terminal and progress.incumbent_s != self._best:
            self._best = progress.incumbent_s
            self._console.print(line(progress))

    def cancelled(self) -> bool:
        """Polled by the search."""
        return self._stop

    @contextmanager
    def shown(self) -> Iterator[None]:
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            if self._console.is_terminal:
                with Live(self._spinner, console=self._console, transient=True, refresh_per_second=8):
                    yield
            else:
                yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, number: int, frame: FrameType | None) -> Any:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True


def line(progress: Progress) -> str:
    """One line: phase, incumbent, bound, gap, counts, time."""
    proved = [f"bound {seconds(progress.bound_s)}", f"gap {percent(progress.gap)}"] if progress.bound_s else ["no bound yet"]
    parts = [progress.phase, f"best {seconds(progress.incumbent_s)}", *proved,
             f"{progress.candidates:,} candidates, {progress.pruned:,} pruned, {progress.solved:,} solved", f"{progress.elapsed_s:.1f} s"]
    return " | ".join(parts) + (f" | {progress.message}" if progress.message else "")
