"""The durable queue: plans run outside the request, survive a crash, and are taken up again by the executor of the same name."""
import threading
from typing import Any

import structlog
from dbos import DBOS, DBOSClient, DBOSConfig, WorkflowSerializationFormat

from service.db.plans import Finish, PlanTable
from service.jobs.failures import bug
from service.jobs.pool import SolverPool
from service.jobs.port import Planner
from service.jobs.render import json_bytes
from service.jobs.work import Worker
from service.settings import Settings

APPLICATION = "shardwright"
WORKFLOW = "solve_plan"
QUEUE = "plans"
WORKFLOW_VERSION = "1"                                      # of the steps below, not of the product: jobs of another version are left alone
STOP_WAIT_S = 5.0
GOING = ("PENDING", "ENQUEUED", "DELAYED")
LOG = structlog.get_logger("shardwright.jobs")


class PlanQueue:
    """Hands plans to workers. Plans, statuses and answers live in our own tables; the queue remembers only which plan ids are to be run."""

    def __init__(self, settings: Settings, plans: PlanTable) -> None:
        self._plans = plans
        DBOS.migrate(settings.jobs_database)
        self._client = DBOSClient(system_database_url=settings.jobs_database, application_name=APPLICATION)

    def put(self, plan_id: str) -> None:
        """Have a plan solved. Doing so twice is doing it once: the plan's id is the job's."""
        self._client.enqueue({"workflow_name": WORKFLOW, "queue_name": QUEUE, "workflow_id": plan_id, "app_version": WORKFLOW_VERSION,
                              "serialization_type": WorkflowSerializationFormat.PORTABLE}, plan_id)

    def put_missing(self) -> None:
        """Queue what was stored but not queued, because the service ended between the two; and fail what the queue has given up."""
        for plan_id in self._plans.unfinished_ids():
            self.put(plan_id)
            if self._client.retrieve_workflow(plan_id).get_status().status not in GOING:
                self._plans.finish(plan_id, Finish(status="failed", problem=json_bytes(bug(plan_id, "queue"))))

    def put_orphans(self, silent_s: float) -> None:
        """Queue again what a lost worker has left behind; its name may never come back."""
        for plan_id in self._plans.take_orphans(silent_s):
            LOG.warning("plan of a lost worker queued again", plan_id=plan_id)
            self._client.resume_workflow(plan_id, queue_name=QUEUE)

    def close(self) -> None:
        self._client.destroy()


class WorkerEngine:
    """Runs queued plans in this process: one per solver process at a time. One engine per Python process."""

    def __init__(self, settings: Settings, plans: PlanTable, queue: PlanQueue, planner: Planner) -> None:
        self._stopping = threading.Event()
        self.pool = SolverPool(planner, settings.workers)
        self._worker = Worker(settings, plans, self.pool, self._stopping)
        config: DBOSConfig = {"name": APPLICATION, "system_database_url": settings.jobs_database, "executor_id": settings.executor,
                              "application_version": WORKFLOW_VERSION, "log_level": "WARNING", "use_listen_notify": not settings.is_sqlite}
        DBOS(config=config)
        _register(self._worker)
        DBOS.listen_queues([QUEUE])
        DBOS.launch()
        DBOS.register_queue(QUEUE, worker_concurrency=settings.workers, polling_interval_sec=settings.queue_poll_s, on_conflict="always_update")

        self._watch = threading.Thread(target=self._watch_others, args=(queue, settings.worker_lost_s), name="orphans", daemon=True)
        self._watch.start()

    def _watch_others(self, queue: PlanQueue, lost_s: float) -> None:
        while not self._stopping.wait(lost_s / 4):
            try:
                queue.put_orphans(lost_s)
            except Exception as e:                          # the database may be away for a while; the next round tries again
                LOG.warning("could not look for orphans", reason=type(e).__name__)

    def close(self) -> None:
        """Stop. Jobs in progress are left as they are and resume at the next start."""
        self._stopping.set()
        self.pool.close()
        self._worker.idle.wait(STOP_WAIT_S)
        self._watch.join(STOP_WAIT_S)
        DBOS.destroy(destroy_registry=True)


def _register(worker: Worker) -> None:
    @DBOS.step(name="solve")
    def step(plan_id: str) -> str:
        return worker.run(plan_id)

    @DBOS.workflow(name=WORKFLOW)
    def solve_plan(plan_id: str) -> Any:
        return step(plan_id)
