"""Calibration: measured runs, the sets that they form, and the fits that estimates and plans may name."""
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from service.api import body
from service.api.context import CoreOf, Owner
from service.api.idempotency import once
from service.api.schema import described
from service.db.calibrations import SetState
from service.jobs.calibrations import Observed
from service.jobs.core import Core
from service.jobs.render import json_bytes
from service.jobs.stored import with_sets
from solver.domain.request import ObservationRequest

router = APIRouter(prefix="/v1", tags=["calibration"])
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"
SetName = Annotated[str, Path(pattern=NAME, description="Name of a calibration set")]
ObservationId = Annotated[str, Path(pattern=NAME, description="Id of an observation")]
MAX_PAGE = 200


@router.post("/observations", summary="Add a measured run to a calibration set, which is fitted anew", response_class=Response, status_code=201,
             openapi_extra=described(ObservationRequest, {201: "KeptObservation"}))
async def observe(request: Request, core: CoreOf, owner: Owner) -> Response:
    raw = await body.read(request, core.settings)

    async def act() -> Response:
        return await run_in_threadpool(_observe, core, owner, raw)

    return await once(request, core, owner, "POST /v1/observations", raw, act)


def _observe(core: Core, owner: str, raw: bytes) -> Response:
    asked = core.stored.profile_sets.expanded(body.checked(raw, ObservationRequest), owner)
    observed = core.stored.calibrations.observe(owner, asked, with_sets(raw, asked))
    account = _account(observed.account)
    line = next(row for row in account["observations"] if row["id"] == observed.id)
    return Response(json_bytes(line | {"calibration_set": observed.set_name, "fit": account["fit"]}), status_code=201, media_type="application/json",
                    headers={"Location": f"/v1/observations/{observed.id}"})


@router.get("/observations/{observation_id}", summary="Read an observation as it was posted", response_class=Response,
            openapi_extra=described(None, {200: "StoredObservation"}))
def read_observation(observation_id: ObservationId, core: CoreOf, owner: Owner) -> Response:
    state, found = core.stored.calibrations.observation(owner, observation_id)
    head = json_bytes({"id": found.id, "created_ms": found.created_ms, "calibration_set": state.name})
    return Response(head[:-1] + b',"request":' + found.request + b"}", media_type="application/json")


@router.delete("/observations/{observation_id}", summary="Withdraw an observation; its set is fitted anew, answers that rest on earlier fits stay",
               response_class=Response, openapi_extra=described(None, {200: "Withdrawal"}))
def withdraw(observation_id: ObservationId, core: CoreOf, owner: Owner) -> Response:
    observed: Observed = core.stored.calibrations.withdraw(owner, observation_id)
    return Response(json_bytes({"id": observed.id, "calibration_set": observed.set_name, "fit": _account(observed.account)["fit"]}),
                    media_type="application/json")


@router.get("/calibrations", summary="List calibration sets, by name", response_class=Response,
            openapi_extra=described(None, {200: "CalibrationPage"}))
def list_sets(core: CoreOf, owner: Owner, limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
              cursor: Annotated[str | None, Query(pattern=NAME, description="next_cursor of the page before")] = None) -> Response:
    lines = core.stored.calibrations.table.page(owner, cursor, limit + 1)
    page = lines[:limit]
    items = [_line(state) | {"observations": count, "fit": _account(state.account)["fit"]} for state, count in page]
    return Response(json_bytes({"items": items, "next_cursor": page[-1][0].name if len(lines) > limit else None}), media_type="application/json")


@router.get("/calibrations/{name}", summary="Read a calibration set: its observations, predicted against measured, and every fit that was made of it",
            response_class=Response, openapi_extra=described(None, {200: "CalibrationAnswer"}))
def read_set(name: SetName, core: CoreOf, owner: Owner) -> Response:
    state, _, fits = core.stored.calibrations.read(owner, name)
    kept = [{"created_ms": fit.created_ms, "cost_model": fit.cost_model, "calibration": orjson.Fragment(fit.calibration)} for fit in fits]
    return Response(json_bytes(_line(state) | _account(state.account) | {"fits": kept}), media_type="application/json")


@router.delete("/calibrations/{name}", summary="Delete a calibration set with all of its fits; answers that rest on them stay",
               response_class=Response, status_code=204, openapi_extra=described(None, {204: "nothing"}))
def drop_set(name: SetName, core: CoreOf, owner: Owner) -> Response:
    core.stored.calibrations.drop(owner, name)
    return Response(status_code=204)


def _line(state: SetState) -> dict[str, Any]:
    return {"name": state.name, "created_ms": state.created_ms, "changed_ms": state.changed_ms}


def _account(stored: bytes | None) -> dict[str, Any]:
    account: dict[str, Any] = orjson.loads(stored) if stored is not None else {"fit": None, "observations": []}
    return account
