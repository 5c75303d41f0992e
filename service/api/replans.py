"""POST /v1/replans: a plan, the changed cluster and the remaining steps; move, or stay. The search for a new plan is a plan like any other."""
import orjson
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from service.api import body
from service.api.context import CoreOf, Owner
from service.api.errors import MEDIA_TYPE
from service.api.plans import finished
from service.api.preferences import waiting, wants_fresh
from service.api.schema import described
from service.jobs.core import FINISHED, Core, resource_of
from service.jobs.replans import replanned, search_body
from service.jobs.submit import Submission
from solver.domain.request import ReplanRequest

router = APIRouter(prefix="/v1", tags=["plans"])


@router.post("/replans", summary="Move to another plan after a change, or stay", response_class=Response,
             openapi_extra=described(ReplanRequest, {200: "ReplanAnswer", 202: "PlanResource"}))
async def create_replan(request: Request, core: CoreOf, owner: Owner) -> Response:
    """202 carries the search that is still running: the same request again, later, has the answer."""
    raw = await body.read(request, core.settings)
    asked = body.checked(raw, ReplanRequest)
    preference = waiting(request, core.settings)
    submission = await run_in_threadpool(_submit, core, owner, raw, asked, wants_fresh(request))
    headers = {"Location": f"/v1/plans/{submission.plan_id}"}
    if preference.applied is not None:
        headers["Preference-Applied"] = preference.applied
    if submission.resource is None:
        state = await finished(core, submission.plan_id, preference)
        if state.status == "failed" and state.problem is not None:
            return Response(state.problem, status_code=orjson.loads(state.problem)["status"], media_type=MEDIA_TYPE, headers=headers)
        if state.status not in FINISHED:
            return Response(resource_of(state), status_code=202, media_type="application/json", headers=headers | {"Retry-After": "1"})
        resource = resource_of(state)
    else:
        resource = submission.resource
    decided = await run_in_threadpool(_decided, core, owner, asked, submission.plan_id, resource)
    return Response(decided, media_type="application/json", headers=headers)


def _submit(core: Core, owner: str, raw: bytes, asked: ReplanRequest, fresh: bool) -> Submission:
    return core.submitter.submit(search_body(raw), asked.asked, owner, fresh)


def _decided(core: Core, owner: str, asked: ReplanRequest, plan_id: str, resource: bytes) -> bytes:
    result = orjson.loads(resource)["result"] or NOTHING
    return replanned(core.planner, asked, core.stored.expanded(asked.asked, owner), result, plan_id)


NOTHING = {"outcome": "feasible", "plan": None, "alternatives": (), "bound": {"step_time_s": None}, "reasons": ()}     # cancelled before it began
