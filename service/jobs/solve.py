"""What a solver process does with one job: load -> plan -> verify -> render. Pure apart from the planner; runs in a process of its own."""
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter

from service.jobs.planner import measurements
from service.jobs.port import Planner
from service.jobs.render import json_bytes, result_body
from solver.domain.estimate import Estimate, Reason
from solver.domain.plan import Plan, Versions
from solver.domain.problem import Problem
from solver.domain.request import PlanRequest
from solver.errors import Fault, JudgeError
from solver.search.result import Progress, SearchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A finished job, rendered."""

    outcome: str
    stopped: str
    step_time_s: float | None
    has_plan: bool
    result: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A job that raised: `faults` where the input is to blame, otherwise our own `message` for the log."""

    kind: str                                              # input | judge | bug
    message: str
    faults: tuple[Fault, ...] = ()


@cache
def plan_request() -> TypeAdapter[PlanRequest]:
    return TypeAdapter(PlanRequest)


def solve(planner: Planner, body: bytes, report: Callable[[Progress], None], cancelled: Callable[[], bool]) -> Solved:
    """Answer one request. Raises `InputError` where the request is at fault and `JudgeError` where our answer is."""
    request = plan_request().validate_json(body)
    problem = planner.problem(request)
    result = planner.search(problem, request.objective, request.constraints, request.search, report, cancelled)
    calibration = problem.calibration.version if problem.calibration is not None else ""
    result = _with_versions(result, dataclasses.replace(planner.versions(), profiles=measurements(request, problem), calibration=calibration))
    _refuse_bad(planner, problem, request, result)
    return Solved(outcome=result.outcome, stopped=result.search.stopped, has_plan=result.plan is not None,
                  step_time_s=result.predicted.step_time_s if result.predicted is not None else None,
                  result=json_bytes(result_body(result, problem.assumptions)))


def _with_versions(result: SearchResult, versions: Versions) -> SearchResult:
    """Every plan carries the versions that it was made with, so that it can be priced again."""
    def marked(plan: Plan) -> Plan:
        return plan if plan.versions is not None else dataclasses.replace(plan, versions=versions)

    return dataclasses.replace(result, plan=marked(result.plan) if result.plan is not None else None,
                               alternatives=tuple(dataclasses.replace(a, plan=marked(a.plan)) for a in result.alternatives))


def _refuse_bad(planner: Planner, problem: Problem, request: PlanRequest, result: SearchResult) -> None:
    found: list[Reason] = []
    pairs: list[tuple[Plan, Estimate]] = [(a.plan, a.predicted) for a in result.alternatives]
    if result.plan is not None and result.predicted is not None:
        pairs.insert(0, (result.plan, result.predicted))
    elif result.outcome != "infeasible" and result.search.stopped != "cancelled":
        raise JudgeError(f"the search answered {result.outcome!r} without a plan")
    for plan, predicted in pairs:
        found += planner.judge(problem.of_plan(plan), plan, predicted, request.constraints)
    if found:
        raise JudgeError("the search returned a plan that breaks its own rules: " + "; ".join(f"{r.code}: {r.message}" for r in found[:5]))
