"""The service without its surface: everything that the API and the pages work with, put together once."""
from dataclasses import dataclass

from pydantic import TypeAdapter

from service.db.calibrations import CalibrationTable
from service.db.engine import Engine, is_reachable, migrate, open_engine
from service.db.idempotency import IdempotencyTable
from service.db.plans import PlanState, PlanTable
from service.db.profile_sets import ProfileSetTable
from service.jobs.calibrations import Calibrations
from service.jobs.planner import LibraryPlanner
from service.jobs.port import Planner
from service.jobs.profile_sets import ProfileSets
from service.jobs.queue import PlanQueue, WorkerEngine
from service.jobs.render import resource_body
from service.jobs.solve import plan_request
from service.jobs.stored import StoredSets
from service.jobs.submit import Submitter
from service.settings import Settings
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.domain.request import PlanRequest

FINISHED = ("succeeded", "failed", "cancelled")


class NoSuchPlan(Exception):
    """The id names no plan of this requester."""


class NoLayout(Exception):
    """The plan is there but holds no layout (yet)."""


@dataclass(slots=True)
class Core:
    """One running service."""

    settings: Settings
    planner: Planner
    engine: Engine
    plans: PlanTable
    idempotency: IdempotencyTable
    queue: PlanQueue
    stored: StoredSets
    submitter: Submitter
    workers: WorkerEngine | None

    def resource(self, plan_id: str, owner: str = "") -> tuple[str, bytes]:
        """Status and plan resource. Raises `NoSuchPlan`."""
        state = self.plans.state(plan_id, owner)
        if state is None:
            raise NoSuchPlan(f"there is no plan {plan_id[:80]!r}")
        return state.status, resource_of(state)

    def layout(self, plan_id: str, owner: str = "", baseline: str | None = None) -> tuple[PlanRequest, Problem, Plan]:
        """A stored plan with the problem that it solves, or one of the simpler plans beside it. Raises `NoSuchPlan` and `NoLayout`."""
        status, resource = self.resource(plan_id, owner)
        result = _RESOURCE.validate_json(resource).get("result") or {}
        if not result.get("plan"):
            raise NoLayout(f"plan {plan_id} is {status} and holds no layout")
        chosen = result["plan"]
        if baseline is not None:
            beside = {b["name"]: b.get("plan") for b in result.get("baselines", [])}
            chosen = beside.get(baseline)
            if not chosen:
                raise NoSuchPlan(f"plan {plan_id} has no baseline {baseline[:80]!r}; legal: {', '.join(n for n, p in beside.items() if p) or 'none'}")
        request, plan = plan_request().validate_json(self.plans.request(plan_id)), _PLAN.validate_json(_RESOURCE.dump_json(chosen))
        return request, self.planner.problem(request).of_plan(plan), plan

    def is_ready(self) -> dict[str, bool]:
        """What must hold before requests are sent here."""
        checks = {"database": is_reachable(self.engine)}
        if self.workers is not None:
            checks["solver"] = self.workers.pool.is_ready()
        return checks

    def close(self) -> None:
        if self.workers is not None:
            self.workers.close()
        self.queue.close()
        self.engine.dispose()


_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)
_RESOURCE: TypeAdapter[dict] = TypeAdapter(dict)


def resource_of(state: PlanState) -> bytes:
    """The plan resource in any state."""
    return state.resource or resource_body(state.id, state.status, state.progress, None, state.problem)


def open_core(settings: Settings, planner: Planner | None = None) -> Core:
    """Open the database, migrate it, and start the workers that this process is to have."""
    planner = planner or LibraryPlanner()
    planner.load()
    engine = open_engine(settings.database)
    migrate(engine)
    plans = PlanTable(engine)
    stored = StoredSets(ProfileSets(settings, ProfileSetTable(engine)), Calibrations(settings, CalibrationTable(engine), planner))
    queue = PlanQueue(settings, plans)
    workers = WorkerEngine(settings, plans, queue, planner) if settings.solves else None
    queue.put_missing()
    return Core(settings=settings, planner=planner, engine=engine, plans=plans, idempotency=IdempotencyTable(engine), queue=queue,
                stored=stored, submitter=Submitter(settings, plans, planner, stored, queue.put), workers=workers)



