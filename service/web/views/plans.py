"""A plan: its progress while it runs, then its result; and the list of recent ones."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from service.web.backend import Json, Refused, backend_of
from service.web.charts import gap_chart, timeline
from service.web.render import HEADERS, page, text
from service.web.result import chunk_seconds, layout_in_words, result_view

router = APIRouter(include_in_schema=False)
POLL_S = 0.5
HEARTBEAT_S = 15.0
STREAM_LIMIT_S = 3600.0
PAGE = 50
MAX_HISTORY = 600
DRAWN_STAGES = 24  # a timeline of more stages, or a plan of more GPUs, is offered as a file alone
DRAWN_GPUS = 4096
RUNNING = ("queued", "running")


@router.get("/plans")
def recent(request: Request) -> Response:
    """Recent plans, newest first."""
    plans, following = backend_of(request).plans(request, request.query_params.get("cursor"), PAGE)
    return page(request, "plans.html", plans=plans, following=following)


@router.get("/plans/{plan_id}")
def plan(request: Request, plan_id: str) -> Response:
    """One plan, in whatever state it is."""
    resource = backend_of(request).plan(request, plan_id)
    if resource is None:
        return page(
            request, "error.html", status=404, title="No such plan", message=f"There is no plan {plan_id[:64]!r}, or it belongs to another key."
        )
    return page(request, "plan.html", **_context(request, resource))


def _context(request: Request, resource: Json) -> dict[str, Any]:
    backend, plan_id = backend_of(request), resource["id"]
    shown: dict[str, Any] = {
        "resource": resource,
        "running": resource["status"] in RUNNING,
        "view": None,
        "exports": (),
        "timeline": None,
        "chart": None,
        "history": (),
        "assumptions": resource.get("assumptions") or (),
    }
    result = resource.get("result")
    if shown["running"] or not result:
        history = _history(request, plan_id, resource)
        return {**shown, "history": history, "chart": gap_chart(history)}
    shown["assumptions"] = shown["assumptions"] or result.get("assumptions") or ()
    trace = None
    if result.get("plan"):
        shown["exports"] = backend.exports(request, plan_id)
        stages = result["plan"]["pipelines"][0]["stages"]
        gpus = sum(len(d["gpus"]) for p in result["plan"]["pipelines"] for s in p["stages"] for d in s["devices"])
        trace = backend.timeline(request, plan_id) if len(stages) <= DRAWN_STAGES and gpus <= DRAWN_GPUS else None
    view = result_view(resource, chunk_seconds(trace))
    return {
        **shown,
        "view": view,
        "timeline": timeline(trace) if trace else None,
        "words": layout_in_words(result["plan"]) if result.get("plan") else "",
    }


def _history(request: Request, plan_id: str, resource: Json) -> list[Json]:
    """Progress so far, thinned to what a chart can show."""
    records = list(backend_of(request).history(request, plan_id))
    if resource.get("progress") and (not records or records[-1] != resource["progress"]):
        records.append(resource["progress"])
    step = max(1, len(records) // MAX_HISTORY)
    return records[:-1:step] + records[-1:]


@router.post("/plans/{plan_id}/cancel")
def cancel(request: Request, plan_id: str) -> Response:
    """Stop a search; the best plan so far stays."""
    backend_of(request).cancel(request, plan_id)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/plans/{plan_id}", status_code=303)


@router.get("/plans/{plan_id}/live")
async def live(request: Request, plan_id: str) -> Response:
    """Server-sent events: the progress panel again whenever it changes; the last one makes the page fetch the result."""
    if await run_in_threadpool(backend_of(request).plan, request, plan_id) is None:
        return Response(status_code=404)
    place = backend_of(request).stream(request)
    try:
        stopping = place.__enter__()
    except Refused as refused:
        return Response(str(refused), status_code=refused.status, headers={"Retry-After": "5"})
    return StreamingResponse(
        _placed(request, plan_id, stopping, place),
        media_type="text/event-stream",
        headers={**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _placed(request: Request, plan_id: str, stopping: Callable[[], bool], place: AbstractContextManager[Any]) -> AsyncIterator[str]:
    try:
        async for text_event in _stream(request, plan_id, stopping):
            yield text_event
    finally:
        place.__exit__(None, None, None)


async def _stream(request: Request, plan_id: str, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    seen: Json | None = None
    began = spoke = time.monotonic()
    while time.monotonic() - began < STREAM_LIMIT_S and not stopping() and not await request.is_disconnected():
        resource = await run_in_threadpool(backend_of(request).plan, request, plan_id)
        if resource is None:
            return
        running = resource["status"] in RUNNING
        if not running or resource.get("progress") != seen:
            seen = resource.get("progress")
            history = await run_in_threadpool(_history, request, plan_id, resource)
            yield event(
                "progress",
                text(
                    "_progress.html",
                    resource=resource,
                    running=running,
                    history=history,
                    chart=gap_chart(history),
                    root=request.scope.get("root_path", ""),
                ),
            )
            spoke = time.monotonic()
        if not running:
            yield event("done", "")                         # the page closes the stream; left to us, the browser would take the end for an error
            return
        if time.monotonic() - spoke > HEARTBEAT_S:
            yield ": alive\n\n"
            spoke = time.monotonic()
        await asyncio.sleep(POLL_S)


def event(name: str, data: str) -> str:
    """One server-sent event; every line of the data gets its own field.

    >>> event("progress", "a\\nb")
    'event: progress\\ndata: a\\ndata: b\\n\\n'
    """
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n"
