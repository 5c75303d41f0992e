"""Plans: ask for the best layout, read it, list, and leave."""
import asyncio
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from service.api import body
from service.api.context import CoreOf, Owner
from service.api.errors import MEDIA_TYPE
from service.api.idempotency import once
from service.api.metrics import metrics_of
from service.api.preferences import Preference, waiting, wants_fresh
from service.api.schema import described
from service.db.plans import PlanState
from service.jobs.core import FINISHED, Core, NoSuchPlan, resource_of
from service.jobs.render import json_bytes
from service.jobs.submit import Submission
from solver.domain.request import PlanRequest

router = APIRouter(prefix="/v1", tags=["plans"])
PlanId = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$", description="Id of a plan")]
FIRST_POLL_S, LAST_POLL_S = 0.01, 0.1
MAX_PAGE = 200


@router.post("/plans", summary="Find the best layout", response_class=Response,
             openapi_extra=described(PlanRequest, {200: "PlanResource", 201: "PlanResource", 202: "PlanResource"}))
async def create_plan(request: Request, core: CoreOf, owner: Owner) -> Response:
    raw = await body.read(request, core.settings)
    return await once(request, core, owner, "POST /v1/plans", raw, lambda: _answer(request, core, owner, raw))


async def _answer(request: Request, core: Core, owner: str, raw: bytes) -> Response:
    preference = waiting(request, core.settings)
    submission = await run_in_threadpool(_submit, core, owner, raw, wants_fresh(request))
    metrics_of(request.app).submissions.labels(submission.how).inc()
    headers = {"Location": f"/v1/plans/{submission.plan_id}"}
    if preference.applied is not None:
        headers["Preference-Applied"] = preference.applied
    if submission.resource is not None:
        headers["Cache-Status"] = "shardwright; hit"
        return Response(submission.resource, media_type="application/json", headers=headers)
    return _settled(await finished(core, submission.plan_id, preference), headers)


def _submit(core: Core, owner: str, raw: bytes, fresh: bool) -> Submission:
    return core.submitter.submit(raw, body.checked(raw, PlanRequest), owner, fresh)


async def finished(core: Core, plan_id: str, preference: Preference) -> PlanState:
    """The state of a plan once it is finished or the wait is over."""
    clock = asyncio.get_running_loop()
    until_s = clock.time() + preference.wait_s
    pause_s = FIRST_POLL_S
    while True:
        state = await run_in_threadpool(core.plans.state, plan_id)
        if state is None:
            raise NoSuchPlan(f"plan {plan_id} is gone")
        left_s = until_s - clock.time()
        if state.status in FINISHED or left_s <= 0:
            return state
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 1.5, LAST_POLL_S)


def _settled(state: PlanState, headers: dict[str, str]) -> Response:
    if state.status == "failed" and state.problem is not None:
        return Response(state.problem, status_code=orjson.loads(state.problem)["status"], media_type=MEDIA_TYPE, headers=headers)
    if state.status in FINISHED:
        return Response(resource_of(state), status_code=201, media_type="application/json", headers=headers)
    return Response(resource_of(state), status_code=202, media_type="application/json", headers=headers | {"Retry-After": "1"})


@router.get("/plans", summary="List plans, newest first", response_class=Response, openapi_extra=described(None, {200: "PlanPage"}))
def list_plans(core: CoreOf, owner: Owner, limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
               cursor: Annotated[str | None, Query(pattern=r"^[0-9a-f]{32}$", description="next_cursor of the page before")] = None,
               status: Literal["queued", "running", "succeeded", "failed", "cancelled"] | None = None) -> Response:
    lines = core.plans.page(owner, cursor, limit + 1, status)
    page = lines[:limit]
    return Response(json_bytes({"items": page, "next_cursor": page[-1].id if len(lines) > limit else None}), media_type="application/json")


@router.get("/plans/{plan_id}", summary="Read a plan", response_class=Response, openapi_extra=described(None, {200: "PlanResource"}))
def read_plan(plan_id: PlanId, core: CoreOf, owner: Owner) -> Response:
    status, resource = core.resource(plan_id, owner)
    return Response(resource, media_type="application/json", headers={} if status in FINISHED else {"Retry-After": "1"})


@router.delete("/plans/{plan_id}", summary="Leave a plan; the search stops with the last requester and keeps its best plan so far",
               response_class=Response, openapi_extra=described(None, {200: "PlanResource", 202: "PlanResource"}))
def leave_plan(plan_id: PlanId, core: CoreOf, owner: Owner) -> Response:
    state = core.plans.detach(plan_id, owner)
    if state is None:
        raise NoSuchPlan(f"there is no plan {plan_id[:80]!r}")
    return Response(resource_of(state), status_code=200 if state.status in FINISHED else 202, media_type="application/json")
