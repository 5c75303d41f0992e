"""POST /v1/estimates: what would this layout do?"""
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from service.api import body
from service.api.context import CoreOf, Owner
from service.api.schema import described
from service.jobs.core import Core
from service.jobs.render import estimate_body, json_bytes
from solver.domain.request import EstimateRequest

router = APIRouter(prefix="/v1", tags=["estimates"])


@router.post("/estimates", summary="Price a layout", response_class=Response, openapi_extra=described(EstimateRequest, {200: "Estimate"}))
async def create_estimate(request: Request, core: CoreOf, owner: Owner) -> Response:
    raw = await body.read(request, core.settings)
    return Response(await run_in_threadpool(_estimate, core, owner, raw), media_type="application/json")


def _estimate(core: Core, owner: str, raw: bytes) -> bytes:
    asked = core.stored.expanded(body.checked(raw, EstimateRequest), owner)
    problem = core.planner.problem(asked)
    return json_bytes(estimate_body(core.planner.estimate(problem, asked), problem.assumptions))
