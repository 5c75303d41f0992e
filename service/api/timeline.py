"""GET /v1/plans/{id}/timeline: the pipeline as Chrome trace JSON."""
from fastapi import APIRouter
from starlette.responses import Response

from service.api.context import CoreOf, Owner
from service.api.plans import PlanId
from service.api.schema import described
from service.jobs import exporting
from service.jobs.render import json_bytes

router = APIRouter(prefix="/v1", tags=["plans"])


@router.get("/plans/{plan_id}/timeline", summary="One step of the pipeline, for chrome://tracing or Perfetto", response_class=Response,
            openapi_extra=described(None, {200: "object"}))
def read_timeline(plan_id: PlanId, core: CoreOf, owner: Owner) -> Response:
    _, problem, plan = core.layout(plan_id, owner)
    trace = exporting.timeline(problem, plan)
    return Response(trace if isinstance(trace, str | bytes) else json_bytes(trace), media_type="application/json")
