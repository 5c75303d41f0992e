"""The seam between the pages and the service: everything that a page needs, in one protocol. Values are JSON as the API gives it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from solver.errors import Fault

Json = Mapping[str, Any]


class Refused(Exception):
    """A request body that the parser refuses, or a limit of the service; carries every fault."""

    def __init__(self, *faults: Fault, status: int = 422) -> None:
        super().__init__("; ".join(f.message for f in faults))
        self.faults = faults
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOption:
    """A launcher format: available, or the reasons why this plan cannot be written in it."""

    target: str
    available: bool
    reasons: tuple[str, ...] = ()
    instead: str | None = None                              # name of the baseline that this launcher can run, where the plan itself cannot


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What the service knows by name, for the pickers and the catalogue page."""

    devices: Sequence[Json]
    links: Sequence[Json]
    presets: Sequence[Json]  # name, source, parameters, architecture
    version: str


class Backend(Protocol):
    """What the pages ask of the service. Functions are synchronous; the pages call them from worker threads."""

    def check(self, request: Request, body: Json) -> None:
        """Parse and resolve a plan request as POST /v1/plans does; raise `Refused` with every fault."""

    def submit(self, request: Request, body: Json) -> str:
        """Store and queue a plan request, or find it in the cache; the plan's id. Raises `Refused`."""

    def plan(self, request: Request, plan_id: str) -> Json | None:
        """The plan resource (id, status, progress, result, request), or None where there is none for this caller."""

    def history(self, request: Request, plan_id: str) -> Sequence[Json]:
        """Every progress record of a plan so far, oldest first."""

    def plans(self, request: Request, cursor: str | None, limit: int) -> tuple[Sequence[Json], str | None]:
        """Recent plans, newest first, and the cursor of the next page."""

    def cancel(self, request: Request, plan_id: str) -> None:
        """Stop a plan, keeping the best found so far."""

    def exports(self, request: Request, plan_id: str) -> Sequence[ExportOption]:
        """Which launchers can run a finished plan."""

    def timeline(self, request: Request, plan_id: str) -> Json | None:
        """The Chrome trace of a finished plan, or None where there is none."""

    def catalogue(self) -> Catalogue:
        """Devices, links and presets."""

    def stream(self, request: Request) -> AbstractContextManager[Callable[[], bool]]:
        """A place among the open event streams, which are bounded, and a way to ask whether the service is stopping. Raises `Refused`."""


def backend_of(request: Request) -> Backend:
    """The backend that the application was composed with."""
    backend: Backend = request.app.state.web_backend
    return backend
