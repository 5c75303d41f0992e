"""GET /v1/plans/{id}/events: the search as it goes, as server-sent events that can be resumed."""
import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from service.api.context import CoreOf, Owner
from service.api.errors import Refused
from service.api.metrics import metrics_of
from service.api.plans import PlanId
from service.api.schema import described
from service.jobs.core import FINISHED, Core, NoSuchPlan, resource_of

router = APIRouter(prefix="/v1", tags=["plans"])
POLL_S = 0.2
KEEP_ALIVE_S = 10.0
RETRY_MS = 1000


class Streams:
    """The event streams that are open, bounded."""

    def __init__(self, most: int) -> None:
        self.most, self.open = most, 0
        self.stopping = asyncio.Event()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


@router.get("/plans/{plan_id}/events", summary="Follow a search: events `progress` with incumbent, bound and gap, then one event `done`",
            response_class=StreamingResponse, openapi_extra=described(None, {200: "text/event-stream"}))
async def follow_plan(plan_id: PlanId, request: Request, core: CoreOf, owner: Owner) -> StreamingResponse:
    streams: Streams = request.app.state.streams
    if await run_in_threadpool(core.plans.state, plan_id, owner) is None:
        raise NoSuchPlan(f"there is no plan {plan_id[:80]!r}")
    if streams.open >= streams.most:
        raise Refused(503, "too-many-streams", f"{streams.most} event streams are open, which is the most; poll the plan instead")
    last = request.headers.get("last-event-id", "")
    after = int(last) if last.isdecimal() and last.isascii() and len(last) < 10 else 0
    return StreamingResponse(_counted(request, streams, _events(core, plan_id, after, streams)), media_type="text/event-stream",
                             headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


async def _counted(request: Request, streams: Streams, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    with streams.one():
        metrics_of(request.app).streams.set(streams.open)
        async for event in events:
            yield event
    metrics_of(request.app).streams.set(streams.open)


async def _events(core: Core, plan_id: str, after: int, streams: Streams) -> AsyncIterator[bytes]:
    yield f"retry: {RETRY_MS}\n\n".encode()
    clock = asyncio.get_running_loop()
    quiet_since_s = clock.time()
    while not streams.stopping.is_set():
        state = await run_in_threadpool(core.plans.state, plan_id)      # before the events: none can be missed behind a final state
        events = await run_in_threadpool(core.plans.events, plan_id, after)
        for after, data in events:
            yield event("progress", data, after)
        if state is None or state.status in FINISHED:
            if state is not None:
                yield event("done", resource_of(state), after)
            return
        if events:
            quiet_since_s = clock.time()
        elif clock.time() - quiet_since_s > KEEP_ALIVE_S:
            quiet_since_s = clock.time()
            yield b": still there\n\n"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(streams.stopping.wait(), POLL_S)


def event(name: str, data: bytes, seq: int) -> bytes:
    """One server-sent event; JSON bytes hold no line breaks."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, name.encode(), data)
