"""Sets of measurements: figures of operators, collectives and memory by device, shape and precision, and of a model's layers."""
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from service.api import body
from service.api.context import CoreOf, Owner
from service.api.idempotency import once
from service.api.schema import described
from service.db.profile_sets import StoredSet
from service.jobs.core import Core
from service.jobs.render import json_bytes
from solver.domain.profile_set import NamedProfileSet

router = APIRouter(prefix="/v1", tags=["profiles"])
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"
SetName = Annotated[str, Path(pattern=NAME, description="Name of a profile set")]
MAX_PAGE = 200


@router.post("/profiles", summary="Keep a set of measurements under a name", response_class=Response,
             openapi_extra=described(NamedProfileSet, {200: "KeptProfileSet", 201: "KeptProfileSet"}))
async def keep_set(request: Request, core: CoreOf, owner: Owner) -> Response:
    raw = await body.read(request, core.settings)

    async def act() -> Response:
        return await run_in_threadpool(_keep, core, owner, raw)

    return await once(request, core, owner, "POST /v1/profiles", raw, act)


def _keep(core: Core, owner: str, raw: bytes) -> Response:
    stored, new, assumptions = core.stored.profile_sets.keep(body.checked(raw, NamedProfileSet), owner)
    return Response(json_bytes(_line(stored) | {"assumptions": assumptions}), status_code=201 if new else 200, media_type="application/json",
                    headers={"Location": f"/v1/profiles/{stored.name}"})


@router.get("/profiles", summary="List sets of measurements, by name", response_class=Response,
            openapi_extra=described(None, {200: "ProfileSetPage"}))
def list_sets(core: CoreOf, owner: Owner, limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
              cursor: Annotated[str | None, Query(pattern=NAME, description="next_cursor of the page before")] = None) -> Response:
    lines = core.stored.profile_sets.table.page(owner, cursor, limit + 1)
    page = lines[:limit]
    return Response(json_bytes({"items": [_line(s) for s in page], "next_cursor": page[-1].name if len(lines) > limit else None}),
                    media_type="application/json")


@router.get("/profiles/{name}", summary="Read a set of measurements with all its rows", response_class=Response,
            openapi_extra=described(None, {200: "ProfileSetAnswer"}))
def read_set(name: SetName, core: CoreOf, owner: Owner) -> Response:
    stored, rows = core.stored.profile_sets.read(name, owner)
    head = {"name": stored.name, "digest": stored.digest, "created_ms": stored.created_ms}
    return Response(json_bytes(head)[:-1] + b"," + rows[1:], media_type="application/json")


@router.delete("/profiles/{name}", summary="Delete a set of measurements; answers that rest on it stay", response_class=Response,
               status_code=204, openapi_extra=described(None, {204: "nothing"}))
def drop_set(name: SetName, core: CoreOf, owner: Owner) -> Response:
    core.stored.profile_sets.drop(name, owner)
    return Response(status_code=204)


def _line(stored: StoredSet) -> dict[str, Any]:
    summary: dict[str, Any] = orjson.loads(stored.summary)
    return {"name": stored.name, "digest": stored.digest, "created_ms": stored.created_ms} | summary
