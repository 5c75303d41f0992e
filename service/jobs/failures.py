"""Problem documents (RFC 9457) of failed jobs, and the shape that all of them share."""
from collections.abc import Sequence
from typing import Any

from solver.errors import Fault

TYPE_PREFIX = "urn:shardwright:problem:"


def problem(kind: str, title: str, status: int, detail: str, faults: Sequence[Fault] = (), **extra: Any) -> dict[str, Any]:
    """One body shape for everything that goes wrong: a stable type, words, and each fault with its JSON pointer."""
    body: dict[str, Any] = {"type": TYPE_PREFIX + kind, "title": title, "status": status, "detail": detail}
    if faults:
        body["errors"] = [{"pointer": f.pointer, "message": f.message, "legal": f.legal} for f in faults]
    return body | extra


def input_failure(faults: Sequence[Fault]) -> dict[str, Any]:
    return problem("not-plannable", "The request cannot be planned", 422, "; ".join(f"{f.pointer or '/'}: {f.message}" for f in faults), faults)


def died(plan_id: str, attempts: int, reason: str) -> dict[str, Any]:
    return problem("solver-died", "The solver process died", 500,
                   f"The search was started {attempts} times and never finished ({reason}); the machine may be out of memory. "
                   "Try fewer candidates (constraints), or a machine with more memory.", plan_id=plan_id)


def overran(plan_id: str, time_limit_s: float) -> dict[str, Any]:
    return problem("solver-overran", "The search did not stop in time", 500,
                   f"The search was given {time_limit_s:g} s, did not stop after them and was ended. This is a fault of the service.",
                   plan_id=plan_id)


def bug(plan_id: str, kind: str) -> dict[str, Any]:
    if kind == "judge":
        return problem("answer-refused", "The answer did not pass the judge", 500,
                       "The search found a plan that breaks a rule on checking, so it was thrown away. This is a fault of the service.",
                       plan_id=plan_id)
    return problem("internal", "Internal error", 500, "Something went wrong on our side; the log has the details under this plan's id.",
                   plan_id=plan_id)
