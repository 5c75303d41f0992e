"""From a finished search to the answer of POST /v1/replans."""
import json
from dataclasses import asdict, fields
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from service.jobs.port import Planner
from service.jobs.render import estimate_body, json_bytes
from solver.domain.plan import Plan
from solver.domain.request import PlanRequest, ReplanRequest

SEARCHED = tuple(f.name for f in fields(PlanRequest))


def search_body(raw: bytes) -> bytes:
    """The plan request inside a replan request, as it was posted."""
    return json.dumps({k: v for k, v in json.loads(raw).items() if k in SEARCHED}, separators=(",", ":")).encode()


def replanned(planner: Planner, request: ReplanRequest, asked: PlanRequest, result: dict[str, Any], plan_id: str | None = None) -> bytes:
    """The decision, as JSON. `asked` is the search with stored sets in place of their names, `result` what it found."""
    from solver.search.replan.decide import Terms, decide

    problem = planner.problem(asked)
    terms = Terms(remaining_steps=request.remaining_steps, restart_s=request.restart_s, checkpoint_gb_s=request.checkpoint_gb_s,
                  only_safe=request.constraints.memory_margin is not None)
    found = [_plan().validate_json(json_bytes(p)) for p in (result["plan"], *(a["plan"] for a in result["alternatives"])) if p]
    decided = decide(problem, request.plan, found, result["bound"]["step_time_s"], terms)
    predicted = None if decided.predicted is None else estimate_body(decided.predicted, problem.assumptions)
    return json_bytes(asdict(decided) | {"stay": estimate_body(decided.stay, problem.assumptions), "predicted": predicted,
                                         "search": {"plan_id": plan_id, "outcome": result["outcome"], "reasons": result["reasons"]},
                                         "assumptions": problem.assumptions})


@cache
def _plan() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)
