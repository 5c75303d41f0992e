"""The planner of the service: the library behind the protocol of `port`. Slow imports happen at the first call, not at start."""
import dataclasses
import functools
import importlib
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.jobs.spare import SpareProcess
from solver.domain.estimate import Estimate, Reason
from solver.domain.options import Constraints, Objective, SearchOptions
from solver.domain.plan import Plan, Versions
from solver.domain.problem import Problem
from solver.domain.profile_set import ProfileSet
from solver.domain.request import EstimateRequest, ObservationRequest, PlanRequest
from solver.errors import Assumption, Fault, UnknownName
from solver.search.result import Cancelled, Report, SearchResult

if TYPE_CHECKING:
    from solver.cost.fitting import Fitted
    from solver.cost.observation import Run

ANSWERING = ("solver.importers.request", "solver.cost.estimate", "solver.search.driver")
SEARCHING = ("solver.search.formulation.stages", "solver.verify")       # OR-Tools alone takes seconds to load


@dataclass(frozen=True, slots=True)
class LibraryPlanner:
    """Calls the library; stateless, so that every process can have its own."""

    def load(self) -> None:
        for name in ANSWERING:
            importlib.import_module(name)

    def warm(self) -> None:
        _spare().submit(importlib.import_module, "solver.search.driver")
        for name in (*ANSWERING, *SEARCHING):
            importlib.import_module(name)

    def versions(self) -> Versions:
        from solver.catalog.loader import CATALOGUE_VERSION
        from solver.cost.version import COST_MODEL_VERSION

        return Versions(cost_model=COST_MODEL_VERSION, catalogue=CATALOGUE_VERSION)

    def problem(self, request: PlanRequest | EstimateRequest) -> Problem:
        from solver.importers.request import problem_of

        if isinstance(request.calibration_set, str):
            raise UnknownName(Fault(pointer="/calibration_set", message=f"{request.calibration_set!r} names a stored set, and nothing here keeps any",
                                    legal="a fit itself; a service keeps sets"))
        if isinstance(request.profile_set, str):
            raise UnknownName(Fault(pointer="/profile_set", message=f"{request.profile_set!r} names a stored set, and nothing here keeps any",
                                    legal="the set itself, or `profiles`; a service keeps sets"))
        if isinstance(request, PlanRequest):
            from solver.search.driver import refuse_uncovered

            refuse_uncovered(request.objective, request.constraints)
        margin = request.constraints.memory_margin if isinstance(request, PlanRequest) else request.memory_margin
        problem = problem_of(request.model, request.cluster, request.workload, margin, profiles=request.profiles, profile_set=request.profile_set,
                             calibration=request.calibration_set)
        if isinstance(request, PlanRequest):
            return dataclasses.replace(problem, batch_efficiency=request.batch_efficiency or ())
        return _told_of_other_profiles(_told_of_another_fit(problem, request), request)

    def estimate(self, problem: Problem, request: EstimateRequest) -> Estimate:
        from solver.cost.estimate import estimate

        what = request.strategy or request.plan
        assert what is not None                             # the request type refuses a body with neither
        return estimate(problem, what)

    def search(self, problem: Problem, objective: Objective, constraints: Constraints, options: SearchOptions,
               report: Report, cancelled: Cancelled) -> SearchResult:
        from solver.search.driver import search

        spare = _spare()
        try:
            return search(problem, objective, constraints, options, report, cancelled, executor=spare)
        finally:
            spare.release()

    def judge(self, problem: Problem, plan: Plan, predicted: Estimate, constraints: Constraints) -> tuple[Reason, ...]:
        from solver.verify import judge

        return judge(problem, plan, predicted, constraints)

    def run(self, request: ObservationRequest) -> "Run":
        from solver.cost.observation import Observation, run_of

        what = request.strategy or request.plan
        assert what is not None                             # the request type refuses a body with neither
        problem = self.problem(request.asked)
        return run_of(Observation(problem=problem, what=what, step_time_s=request.measured.step_time_s,
                                  peak_memory_gib=request.measured.peak_memory_gib))

    def refuse_absurd(self, run: "Run", others: "Sequence[Run]") -> None:
        from solver.cost.plausible import refuse_absurd

        refuse_absurd(run, others)

    def fitted(self, runs: "Sequence[Run]", set_name: str) -> "Fitted":
        from solver.cost.fitting import fitted

        return fitted(runs, set_name)


def measurements(request: PlanRequest | EstimateRequest, problem: Problem) -> str:
    """Names the measurements that an answer rests on: the digest of the set, of what the request brings along beside it, or nothing."""
    if problem.profiles is None:
        return ""
    kept = request.profile_set.fingerprint() if isinstance(request.profile_set, ProfileSet) else ""
    if kept and (request.profiles is None or request.profiles.empty):
        return kept
    return f"{kept}+{problem.profiles.digest()}" if kept else problem.profiles.digest()


def _told_of_another_fit(problem: Problem, request: EstimateRequest) -> Problem:
    """The problem, with an assumption where a plan that names its calibration is priced by another."""
    plan, now = request.plan, problem.calibration.version if problem.calibration is not None else ""
    made_with = plan.versions.calibration if plan is not None and plan.versions is not None else ""
    if not made_with or made_with == now:
        return problem
    other = f"calibration {now}" if now else "no calibration"
    note = Assumption(pointer="/plan/versions/calibration", message=f"the plan was made with calibration {made_with[:64]} and is priced with {other}")
    return dataclasses.replace(problem, assumptions=(*problem.assumptions, note))


def _told_of_other_profiles(problem: Problem, request: EstimateRequest) -> Problem:
    """The problem, with an assumption where a plan that names its measurements is priced by others."""
    plan, now = request.plan, measurements(request, problem)
    made_with = plan.versions.profiles if plan is not None and plan.versions is not None else ""
    if not made_with or made_with == now:
        return problem
    others = f"profiles {now}" if now else "no profiles"
    note = Assumption(pointer="/plan/versions/profiles", message=f"the plan was made with profiles {made_with[:64]} and is priced with {others}")
    return dataclasses.replace(problem, assumptions=(*problem.assumptions, note))


@functools.cache
def _spare() -> SpareProcess:
    return SpareProcess()


def solver_version() -> str:
    """Version of the solver library, part of the cache key: another one may prove more, or find another optimum."""
    return importlib.metadata.version("ortools")
