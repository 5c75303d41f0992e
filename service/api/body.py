"""Reading a request body within bounds, and turning it into a checked value or an exact list of faults."""
import asyncio
import json
from itertools import islice
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request

from service.api.errors import Refused
from service.api.faults import faults_of
from service.api.strict_json import parse
from service.settings import Settings
from solver.domain.graph import PlacementRequest
from solver.domain.profile_set import NamedProfileSet
from solver.domain.request import EstimateRequest, ObservationRequest, PlanRequest, PoolRequest, ReplanRequest
from solver.errors import Fault, InputError

T = TypeVar("T")
KINDS = (PlanRequest, EstimateRequest, ObservationRequest, ReplanRequest, PlacementRequest, PoolRequest, NamedProfileSet)
BODIES: dict[type, TypeAdapter[Any]] = {cls: TypeAdapter(cls) for cls in KINDS}
MOST_KEYS = 200                                            # of a body's object that are looked at; no request has half as many


async def read(request: Request, settings: Settings) -> bytes:
    """The whole body, or a refusal as soon as it is known to be too large, too slow, or not JSON."""
    media = request.headers.get("content-type", "").lower()
    kind, _, parameters = media.partition(";")
    if kind.strip() != "application/json" or ("charset" in parameters and "utf-8" not in parameters):
        raise Refused(415, "unsupported-media-type", f"Content-Type is {media[:100]!r}; legal: application/json in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "unsupported-encoding", "compressed bodies are not accepted; legal: no Content-Encoding")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and length.isascii() and int(length) > settings.max_body_bytes:
        raise _too_large(settings, f"{int(length)} bytes")
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            return await _collect(request, settings)
    except TimeoutError:
        raise Refused(408, "body-too-slow", f"the body did not arrive within {settings.body_timeout_s:g} s", {"Connection": "close"}) from None
    except ClientDisconnect:
        raise Refused(400, "incomplete-body", "the body ended early") from None


async def _collect(request: Request, settings: Settings) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > settings.max_body_bytes:
            raise _too_large(settings, "more")
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(settings: Settings, size: str) -> Refused:
    return Refused(413, "body-too-large", f"the body has {size}; legal: at most {settings.max_body_bytes} bytes", {"Connection": "close"})


def checked(raw: bytes, cls: type[T]) -> T:
    """The body as an instance of `cls`, one of `BODIES`. Raises `MalformedJson`, or `InputError` with every fault."""
    value: Any = parse(raw)
    if not isinstance(value, dict):
        raise InputError(Fault(pointer="", message="the body is not an object", legal="a JSON object, see /openapi.json"))
    if len(value) > MOST_KEYS:                             # nearly all of them unknown: the first are named, and the rest costs no time
        value = dict(islice(value.items(), MOST_KEYS))
        raw = json.dumps(value).encode()
    try:
        checked_body: T = BODIES[cls].validate_json(raw)
        return checked_body
    except ValidationError as e:
        raise InputError(*faults_of(e, value, cls)) from e
