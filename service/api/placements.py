"""POST /v1/placements and /v1/pools: graphs of operators on devices, and stages as pools of peers. Short solves, answered at once."""
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from service.api import body
from service.api.context import CoreOf, Owner
from service.api.schema import described
from service.jobs.render import json_bytes
from service.jobs.submit import QueueFull
from solver.domain.graph import PlacementRequest
from solver.domain.request import PoolRequest
from solver.importers.request import problem_of

router = APIRouter(prefix="/v1", tags=["placements"])
T = TypeVar("T")
AT_ONCE = 2
_SLOTS = threading.BoundedSemaphore(AT_ONCE)


@router.post("/placements", summary="Place a graph of operators on devices", response_class=Response,
             openapi_extra=described(PlacementRequest, {200: "Placement"}))
async def create_placement(request: Request, core: CoreOf, owner: Owner) -> Response:
    del owner                                              # a key is asked for, nothing is kept
    raw = await body.read(request, core.settings)
    asked = body.checked(raw, PlacementRequest)
    return Response(await run_in_threadpool(_placed, asked), media_type="application/json")


@router.post("/pools", summary="Assign unequal peers to stages as pools", response_class=Response,
             openapi_extra=described(PoolRequest, {200: "PoolPlan"}))
async def create_pools(request: Request, core: CoreOf, owner: Owner) -> Response:
    del owner
    raw = await body.read(request, core.settings)
    asked = body.checked(raw, PoolRequest)
    return Response(await run_in_threadpool(_pooled, asked), media_type="application/json")


def _pooled(asked: PoolRequest) -> bytes:
    from solver.search.pools.plan import pools

    problem = problem_of(asked.model, asked.cluster, asked.workload)
    return json_bytes(solved(lambda: asdict(pools(problem, asked))))


def _placed(asked: PlacementRequest) -> bytes:
    from solver.search.placing.place import place_graph    # OR-Tools is slow to import

    return json_bytes(solved(lambda: asdict(place_graph(asked))))


def solved(work: Callable[[], T]) -> T:
    """The result of a short solve in this process, or a refusal where as many as it takes on are at work."""
    if not _SLOTS.acquire(blocking=False):
        raise QueueFull(f"{AT_ONCE} placements or pools are being solved, which is the most that this service takes on at once")
    try:
        return work()
    finally:
        _SLOTS.release()
