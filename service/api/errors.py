"""One table from errors to statuses, one body shape: RFC 9457 problem documents."""
import http
from typing import Any

import structlog
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.api.strict_json import MalformedJson
from service.db.engine import UNAVAILABLE
from service.jobs.calibrations import CalibrationSetBusy, CalibrationSetFull, NoSuchCalibrationSet, NoSuchObservation
from service.jobs.core import NoLayout, NoSuchPlan
from service.jobs.failures import problem
from service.jobs.profile_sets import NoSuchProfileSet, ProfileSetRefused
from service.jobs.render import json_bytes
from service.jobs.submit import QueueFull
from solver.errors import ExportError, InputError, JudgeError, NotCovered, UnknownName

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = "5"
LOG = structlog.get_logger("shardwright.api")


class Refused(Exception):
    """A request refused before its content matters: size, media type, host, key, rate."""

    def __init__(self, status: int, kind: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.headers = status, kind, detail, headers or {}


# error class -> (status, stable type, title); the most particular class decides
TABLE: dict[type[Exception], tuple[int, str, str]] = {
    MalformedJson: (400, "malformed-json", "The body is not JSON as this service accepts it"),
    InputError: (422, "bad-input", "The body has faults"),
    UnknownName: (422, "unknown-name", "A name is not in the catalogue"),
    NotCovered: (422, "not-covered", "This version does not cover what was asked"),
    NoSuchPlan: (404, "no-such-plan", "There is no such plan"),
    NoLayout: (409, "no-layout", "The plan holds no layout"),
    NoSuchProfileSet: (404, "no-such-profile-set", "There is no such profile set"),
    ProfileSetRefused: (409, "profile-set-refused", "The profile set cannot be kept"),
    NoSuchCalibrationSet: (404, "no-such-calibration-set", "There is no such calibration set"),
    NoSuchObservation: (404, "no-such-observation", "There is no such observation"),
    CalibrationSetFull: (409, "calibration-set-full", "There is no room for another observation"),
    CalibrationSetBusy: (503, "calibration-set-busy", "The calibration set is being changed by others"),
    ExportError: (409, "not-expressible", "The launcher cannot express this plan"),
    JudgeError: (500, "answer-refused", "The answer did not pass the judge"),
    QueueFull: (503, "queue-full", "Too many plans are waiting"),
} | dict.fromkeys(UNAVAILABLE, (503, "database-unavailable", "The database cannot be reached"))


def response(body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """A problem document as an answer; 429 and 503 say when to come back."""
    headers = dict(headers or {})
    if body["status"] in (429, 503):
        headers.setdefault("Retry-After", RETRY_AFTER_S)
    return Response(json_bytes(body), status_code=body["status"], media_type=MEDIA_TYPE, headers=headers)


def document(error: Exception) -> dict[str, Any]:
    """The problem document of an error that is in the table, a refusal, or a bug."""
    if isinstance(error, Refused):
        return problem(error.kind, http.HTTPStatus(error.status).phrase, error.status, error.detail)
    for cls in type(error).__mro__:
        if cls in TABLE:
            status, kind, title = TABLE[cls]
            detail = title + "." if isinstance(error, UNAVAILABLE) else str(error)[:2000]
            return problem(kind, title, status, detail, getattr(error, "faults", ()))
    return problem("internal", "Internal error", 500, "Something went wrong on our side; it has been logged.")


async def _on_error(request: Request, error: Exception) -> Response:
    body = document(error)
    if body["status"] >= 500 and not isinstance(error, QueueFull | CalibrationSetBusy):
        LOG.error("request failed", method=request.method, path=request.url.path, exc_info=error)
    return response(body, getattr(error, "headers", None))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {404: ("not-found", f"{request.url.path[:200]} is not a route of this version; /openapi.json lists all"),
             405: ("method-not-allowed", f"{request.method} is not possible here; legal: {(error.headers or {}).get('Allow', 'see /openapi.json')}")}
    kind, detail = known.get(error.status_code, ("http-error", str(error.detail)))
    return response(problem(kind, http.HTTPStatus(error.status_code).phrase, error.status_code, detail), dict(error.headers or {}))


def install(app: FastAPI) -> None:
    """Have every error of the application answered in the one shape."""
    for cls in (*TABLE, Refused, Exception):
        app.add_exception_handler(cls, _on_error)
    app.add_exception_handler(HTTPException, _on_http_error)
