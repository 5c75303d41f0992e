"""Answers as JSON bytes. Floats are written in the shortest form that reads back to the same number."""
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import orjson

from solver.domain.estimate import Estimate
from solver.errors import Assumption
from solver.search.result import Progress, SearchResult


# What an objective makes least, as estimates name it.
WORTH = {"energy": "energy_per_step_j", "cost": "price_per_step", "fewest_gpus": "gpus", "time_to_accuracy": "time_to_accuracy_s"}


def json_bytes(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def estimate_body(estimate: Estimate, assumptions: Iterable[Assumption]) -> dict[str, Any]:
    """The answer of POST /v1/estimates, and `predicted` of a plan: the same object, so that a plan priced again gives the same bytes."""
    return asdict(estimate) | {"assumptions": list(assumptions)}


def result_body(result: SearchResult, assumptions: tuple[Assumption, ...]) -> dict[str, Any]:
    """`result` of the plan resource."""
    return {
        "objective": result.objective,
        "outcome": result.outcome,
        "plan": result.plan,
        "predicted": estimate_body(result.predicted, assumptions) if result.predicted is not None else None,
        "bound": {"step_time_s": result.bound_s} | ({WORTH[result.objective]: result.bound_worth} if result.objective in WORTH else {}),
        "gap": result.gap,
        "alternatives": [{"plan": a.plan, "predicted": estimate_body(a.predicted, assumptions), "why_not_best": a.why_not_best}
                         for a in result.alternatives],
        "rejected": result.rejected,
        "baselines": result.baselines,
        "tiers": result.tiers,
        "reasons": result.reasons,
        "relaxation": result.relaxation,
        "batch_sizes": result.batch_sizes,
        "search": result.search,
        "assumptions": assumptions,
    }


def progress_body(progress: Progress) -> bytes:
    return json_bytes(progress)


def resource_body(plan_id: str, status: str, progress: bytes | None, result: bytes | None, problem: bytes | None = None) -> bytes:
    """The plan resource. `error` is there only where a job failed."""
    parts = [b'{"id":', json_bytes(plan_id), b',"status":', json_bytes(status),
             b',"progress":', progress or b"null", b',"result":', result or b"null"]
    if problem is not None:
        parts += [b',"error":', problem]
    return b"".join((*parts, b"}"))
