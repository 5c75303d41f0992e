"""Asking for a plan: answer from the cache, join an equal request in flight, or queue a new job."""
import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from service.db.plans import NewPlan, PlanTable
from service.jobs.planner import solver_version
from service.jobs.port import Planner
from service.jobs.render import json_bytes
from service.jobs.stored import StoredSets, with_sets
from service.settings import Settings
from solver.domain.problem import Problem
from solver.domain.problem import fingerprint as canonical_digest
from solver.domain.request import PlanRequest
from solver.errors import Fault, InputError

ATTACH_TRIES = 10


class QueueFull(Exception):
    """So many plans are waiting that another one would not be answered soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Where a request ended up. `resource` is the finished plan resource of a hit."""

    plan_id: str
    how: Literal["hit", "joined", "queued"]
    resource: bytes | None = None


@dataclass(frozen=True, slots=True)
class Submitter:
    """The front of the queue."""

    settings: Settings
    plans: PlanTable
    planner: Planner
    stored: StoredSets
    put: Callable[[str], None]

    def submit(self, body: bytes, request: PlanRequest, owner: str = "", fresh: bool = False) -> Submission:
        """Ask for a plan. `fresh` neither looks at earlier answers nor joins a request in flight. Raises `InputError` and `QueueFull`."""
        self._refuse_long(request)
        request = self.stored.expanded(request, owner)
        body = with_sets(body, request)
        versions = json_bytes({**dataclasses.asdict(self.planner.versions()), "solver": solver_version()})
        limit_s = request.search.time_limit_s
        request_key = self._request_key(request, versions)
        if not fresh and (hit := self.plans.cached(owner, "request_key", request_key, limit_s)):
            return Submission(plan_id=hit[0], how="hit", resource=hit[1])
        problem = self.planner.problem(request)
        cache_key = self._cache_key(request, problem, versions)
        flight = hashlib.sha256(f"{owner} {cache_key} {limit_s!r}".encode()).hexdigest()
        new = NewPlan(owner=owner, cache_key=cache_key, request_key=request_key, flight=None if fresh else flight, time_limit_s=limit_s,
                      model_name=problem.model.name.replace("\0", "\ufffd"), cluster_name=problem.cluster.name, versions=versions, request=body)
        for _ in range(ATTACH_TRIES):                       # a plan may finish, or be given up, between two of these steps
            if not fresh:
                if hit := self.plans.cached(owner, "cache_key", cache_key, limit_s):
                    return Submission(plan_id=hit[0], how="hit", resource=hit[1])
                if joined := self.plans.attach(flight):
                    return Submission(plan_id=joined, how="joined")
            if self.plans.unfinished() >= self.settings.max_queued_plans:
                raise QueueFull(f"{self.settings.max_queued_plans} plans are queued or running, which is the most that this service takes on")
            if plan_id := self.plans.insert(new):
                self.put(plan_id)
                return Submission(plan_id=plan_id, how="queued")
        raise QueueFull("equal requests come and go faster than they can be joined")

    def _refuse_long(self, request: PlanRequest) -> None:
        most_s = self.settings.max_time_limit_s
        if request.search.time_limit_s > most_s:
            raise InputError(Fault(pointer="/search/time_limit_s", message=f"{request.search.time_limit_s:g} s is more than this service allows",
                                   legal=f"0.1 to {most_s:g}"))

    @staticmethod
    def _cache_key(request: PlanRequest, problem: Problem, versions: bytes) -> str:
        """Everything that can change the answer, what it assumes included; the time limit is compared, not matched."""
        return _digest({"problem": problem.fingerprint(), "assumptions": problem.assumptions, "objective": request.objective,
                        "constraints": request.constraints, "options": _without_limit(request)}, versions)

    @staticmethod
    def _request_key(request: PlanRequest, versions: bytes) -> str:
        return _digest(dataclasses.replace(request, search=_without_limit(request)), versions)


def _without_limit(request: PlanRequest) -> Any:
    return dataclasses.replace(request.search, time_limit_s=1.0)


def _digest(value: Any, versions: bytes) -> str:
    try:
        canonical = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:                                       # integers beyond 64 bits, in a model's config
        canonical = canonical_digest(value).encode()
    return hashlib.sha256(versions + b"\n" + canonical).hexdigest()
