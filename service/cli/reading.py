"""Files given at the terminal, read with the same strictness as the bodies of the HTTP interface."""
import sys
from pathlib import Path
from typing import Any

import orjson

from solver.domain.plan import Plan
from solver.domain.request import EstimateRequest, PlanRequest, ReplanRequest
from solver.errors import Fault, InputError

SEARCH_KEYS = ("objective", "batch_efficiency", "constraints", "search")       # of a plan request; pricing one layout has no use for them


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or on standard input for `-`."""
    from service.api.strict_json import parse

    value = parse(raw_of(path))
    if not isinstance(value, dict):
        raise InputError(Fault(pointer="", message=f"{path} holds no object", legal="a JSON object with model, cluster and workload"))
    return value


def raw_of(path: Path) -> bytes:
    """The bytes of a file, or of standard input for `-`."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as e:
        raise InputError(Fault(pointer="", message=f"{path} cannot be read: {e.strerror}", legal="a JSON file, or - for standard input")) from None


def with_calibration(body: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """The request with the fit of a file that `shardwright calibrate` wrote."""
    return body if path is None else body | {"calibration_set": read_object(path)}


def with_profiles(body: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """The request with the profiles of a file."""
    return body if path is None else body | {"profiles": read_object(path)}


def plan_request(body: dict[str, Any], *, time_limit_s: float | None, uniform: bool, launcher: str | None,
                 tier: str | None = None, objective: str | None = None) -> tuple[PlanRequest, bytes]:
    """A plan request with what was said on the command line in place of what the file says; also as the bytes that were checked."""
    body = {k: v for k, v in body.items() if k not in ("strategy", "plan")}
    if time_limit_s is not None:
        body["search"] = _object(body, "search") | {"time_limit_s": time_limit_s}
    if objective is not None:
        body["objective"] = objective
    if uniform:
        body["constraints"] = _object(body, "constraints") | {"uniform": True}
    if launcher is not None:
        body["constraints"] = _object(body, "constraints") | {"launcher": launcher}
    if tier is not None:
        body["constraints"] = _object(body, "constraints") | {"tier": tier}
    return _checked(body, PlanRequest), orjson.dumps(body)


def estimate_request(body: dict[str, Any], strategy: dict[str, Any] | None, plan: dict[str, Any] | None,
                     memory_margin: float | None) -> EstimateRequest:
    """An estimate request; a layout given on the command line stands in place of one in the file."""
    margin = _object(body, "constraints").get("memory_margin")
    body = {k: v for k, v in body.items() if k not in SEARCH_KEYS}
    if memory_margin is not None or margin is not None:
        body["memory_margin"] = memory_margin if memory_margin is not None else margin
    if strategy is not None or plan is not None:
        body.pop("plan", None)
        before = body.pop("strategy", None)
        if plan is not None:
            body["plan"] = plan
        else:
            body["strategy"] = (before if isinstance(before, dict) else {}) | (strategy or {})
    return _checked(body, EstimateRequest)


def replan_request(body: dict[str, Any], plan: dict[str, Any], remaining_steps: int, restart_s: float,
                   time_limit_s: float | None) -> tuple[ReplanRequest, bytes]:
    """A replan request, and the search in it as the bytes that were checked."""
    asked = {k: v for k, v in body.items() if k not in ("objective", "batch_efficiency")}
    _, search = plan_request(asked, time_limit_s=time_limit_s, uniform=False, launcher=None)
    posted = orjson.loads(search) | {"plan": plan, "remaining_steps": remaining_steps, "restart_s": restart_s}
    return _checked(posted, ReplanRequest), search


def problem_request(body: dict[str, Any]) -> PlanRequest:
    """Model, cluster and workload alone."""
    return _checked({k: v for k, v in body.items() if k not in ("strategy", "plan", *SEARCH_KEYS)}, PlanRequest)


def plan_of(value: dict[str, Any]) -> dict[str, Any]:
    """The plan in a file: by itself, in a result, in a plan resource, or in a plain JSON export."""
    for holder in (value.get("result"), value):
        if isinstance(holder, dict) and isinstance(holder.get("plan"), dict):
            return holder["plan"]
    return value


def checked_plan(value: dict[str, Any]) -> Plan:
    """The plan in an object, or every fault of it."""
    from pydantic import TypeAdapter, ValidationError

    from service.api.faults import faults_of

    try:
        return TypeAdapter(Plan).validate_json(orjson.dumps(value))
    except ValidationError as e:
        raise InputError(*faults_of(e, value, Plan)) from e


def _object(body: dict[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _checked(body: dict[str, Any], cls: Any) -> Any:
    from service.api.body import checked

    return checked(orjson.dumps(body), cls)
