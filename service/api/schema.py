"""The OpenAPI description: request and answer schemas straight from the domain's types, every route with its problem documents."""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from service.db.plans import PlanLine
from solver.domain.calibration import Accuracy, Calibration, Learned, Predicted
from solver.domain.estimate import Estimate, Reason
from solver.domain.graph import PlacementRequest
from solver.domain.plan import Plan
from solver.domain.profile_set import NamedProfileSet
from solver.domain.request import EstimateRequest, Measured, ObservationRequest, PlanRequest, PoolRequest, ReplanRequest
from solver.errors import Assumption
from solver.search.placing.place import Placement
from solver.search.pools.plan import PoolPlan
from solver.search.replan.answer import Replan
from solver.search.result import Baseline, Progress, Rejected, Relaxation, SearchReport, TierBest

DESCRIPTION = "Plans how to train a large model on a cluster of unlike GPUs. Errors are problem documents (RFC 9457) that point at each fault."
REF = "#/components/schemas/"
PROBLEMS_OF_BODIES = {400: "not JSON", 403: "from a foreign page", 408: "too slow", 409: "key busy", 413: "too large",
                      415: "wrong media type", 422: "faults in the body", 503: "busy"}
PROBLEMS_OF_ALL = {401: "API key needed", 404: "not found", 409: "not possible in this state", 421: "unknown host", 422: "bad parameter",
                   500: "internal error", 503: "busy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateAnswer(Estimate):
    """The answer of POST /v1/estimates."""

    assumptions: tuple[Assumption, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundAnswer:
    step_time_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeAnswer:
    plan: Plan
    predicted: EstimateAnswer
    why_not_best: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultAnswer:
    """What a search found and proved."""

    outcome: Literal["optimal", "feasible", "infeasible"]
    plan: Plan | None
    predicted: EstimateAnswer | None
    bound: BoundAnswer
    gap: float | None
    alternatives: tuple[AlternativeAnswer, ...]
    rejected: tuple[Rejected, ...]
    baselines: tuple[Baseline, ...]
    tiers: tuple[TierBest, ...]
    reasons: tuple[Reason, ...]
    relaxation: Relaxation | None
    search: SearchReport
    assumptions: tuple[Assumption, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanSearch:
    """The search for a new plan, and how it ended."""

    plan_id: str | None
    outcome: Literal["optimal", "feasible", "infeasible"]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanAnswer(Replan):
    """The answer of POST /v1/replans."""

    stay: EstimateAnswer
    predicted: EstimateAnswer | None
    search: ReplanSearch
    assumptions: tuple[Assumption, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultAnswer:
    """One fault of a body."""

    pointer: str
    message: str
    legal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemAnswer:
    """A problem document."""

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[FaultAnswer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResource:
    """A plan. `error` is there only where the job failed."""

    id: str
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    progress: Progress | None
    result: ResultAnswer | None
    error: ProblemAnswer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    items: tuple[PlanLine, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTarget:
    target: str
    available: bool
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportList:
    targets: tuple[ExportTarget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    version: str
    items: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyList:
    schedules: tuple[dict[str, Any], ...]
    levers: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSetLine:
    """A stored set of measurements without its rows."""

    name: str
    digest: str
    created_ms: int
    source: str | None
    rows: dict[str, int]
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptProfileSet(ProfileSetLine):
    """The answer of POST /v1/profiles."""

    assumptions: tuple[Assumption, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSetPage:
    items: tuple[ProfileSetLine, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSetAnswer(NamedProfileSet):
    """A stored set with its rows, names of GPUs as the catalogue has them."""

    digest: str
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer:
    """The newest fit of a calibration set: what each coefficient is multiplied with, and how well runs are predicted by it."""

    version: str
    runs: int
    expected_error: float
    coefficients: tuple[Learned, ...]
    step_time: Accuracy | None
    peak_memory: Accuracy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationLine:
    """A measured run, and what is predicted of its layout before and after calibration."""

    id: str
    created_ms: int
    measured: Measured
    before: Predicted
    after: Predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptObservation(ObservationLine):
    """The answer of POST /v1/observations."""

    calibration_set: str
    fit: FitAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObservation:
    id: str
    created_ms: int
    calibration_set: str
    request: ObservationRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal:
    """`fit` is null where no observation is left."""

    id: str
    calibration_set: str
    fit: FitAnswer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationLine:
    """A calibration set. `fit` is null where it holds no observation."""

    name: str
    created_ms: int
    changed_ms: int
    observations: int
    fit: FitAnswer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPage:
    items: tuple[CalibrationLine, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFit:
    created_ms: int
    cost_model: str
    calibration: Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationAnswer:
    """A calibration set with its observations and every fit that was made of it, newest first."""

    name: str
    created_ms: int
    changed_ms: int
    fit: FitAnswer | None
    observations: tuple[ObservationLine, ...]
    fits: tuple[KeptFit, ...]


REQUESTS = (EstimateRequest, PlanRequest, ObservationRequest, ReplanRequest, PlacementRequest, PoolRequest, NamedProfileSet)
ANSWERS = (EstimateAnswer, ReplanAnswer, Placement, PoolPlan,
           PlanResource, PlanPage, KeptProfileSet, ProfileSetPage, ProfileSetAnswer, KeptObservation, StoredObservation,
           Withdrawal, CalibrationPage, CalibrationAnswer, ExportList, Catalogue, StrategyList,
           ProblemAnswer)


def described(request: type | None, answers: Mapping[int, str]) -> dict[str, Any]:
    """The part of a route's description that its signature does not tell: body, answers, problem documents."""
    extra: dict[str, Any] = {"responses": {str(status): _answer(name) for status, name in answers.items()}}
    if request is not None:
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": {"$ref": REF + request.__name__}}}}
    problems = PROBLEMS_OF_ALL | (PROBLEMS_OF_BODIES if request is not None else {})
    for status, words in sorted(problems.items()):
        extra["responses"][str(status)] = {"description": words[0].upper() + words[1:],
                                           "content": {"application/problem+json": {"schema": {"$ref": REF + "ProblemAnswer"}}}}
    return extra


def _answer(name: str) -> dict[str, Any]:
    if name == "nothing":
        return {"description": "Done"}
    if "/" in name:
        return {"description": "A stream of events", "content": {name: {"schema": {"type": "string"}}}}
    if name == "file":
        return {"description": "The file", "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
    schema = {"type": "object"} if name == "object" else {"$ref": REF + {"Estimate": "EstimateAnswer"}.get(name, name)}
    return {"description": "Done", "content": {"application/json": {"schema": schema}}}


def openapi(app: FastAPI) -> dict[str, Any]:
    """The description of a whole application, made once."""
    if app.openapi_schema is None:
        body = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
        schemas = body.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for operation in (operation for methods in body["paths"].values() for operation in methods.values()):
            operation["responses"].get("422", {}).get("content", {}).pop("application/json", None)     # FastAPI's own shape, never sent
        for request in REQUESTS:
            _add(schemas, request, "validation")
        for answer in ANSWERS:
            _add(schemas, answer, "serialization")
        body["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = body
    return app.openapi_schema


def _add(schemas: dict[str, Any], cls: type, mode: Literal["validation", "serialization"]) -> None:
    schema = TypeAdapter(cls).json_schema(ref_template=REF + "{model}", mode=mode)
    for name, part in schema.pop("$defs", {}).items():
        schemas.setdefault(name, part)
    schemas[cls.__name__] = schema
