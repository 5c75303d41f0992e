"""One job from start to stored answer, on the worker's side."""
import threading
import time
from dataclasses import dataclass, field

import structlog

from service.db.engine import UNAVAILABLE
from service.db.plans import Finish, PlanTable
from service.jobs.active import Active
from service.jobs.failures import bug, died, input_failure, overran
from service.jobs.pool import SolverPool
from service.jobs.process import ProcessDied
from service.jobs.render import json_bytes, resource_body
from service.jobs.solve import Failed, Solved, plan_request
from service.settings import Settings

BEAT_EVERY_S = 0.5
STORE_RETRIES_S = (0.1, 0.5, 1.0, 5.0, 10.0, 20.0)
LOG = structlog.get_logger("shardwright.jobs")


class Stopping(BaseException):
    """The service is shutting down: leave the job as it is, to be resumed. Not an Exception, so that the queue does not record a failure."""


@dataclass(slots=True)
class Worker:
    """Solves plans that the queue hands over."""

    settings: Settings
    plans: PlanTable
    pool: SolverPool
    stopping: threading.Event
    idle: Active = field(default_factory=Active)

    def run(self, plan_id: str) -> str:
        """Solve a plan and store how it ended; the status. Safe to repeat: a finished plan stays as it is."""
        log = LOG.bind(plan_id=plan_id)
        with self.idle.job():
            return self._guarded(plan_id, log)

    def _guarded(self, plan_id: str, log: structlog.stdlib.BoundLogger) -> str:
        try:
            return self._run(plan_id, log)
        except Stopping:
            self.plans.pause(plan_id)
            log.info("plan put off until the next start")
            raise
        except Exception:
            log.exception("job broke")
            self._store(plan_id, Finish(status="failed", problem=json_bytes(bug(plan_id, "bug"))))
            raise

    def _run(self, plan_id: str, log: structlog.stdlib.BoundLogger) -> str:
        state = self.plans.start(plan_id, self.settings.executor)
        if state is None:
            self._store(plan_id, Finish(status="cancelled"))
            return "over"
        log.info("plan started", attempt=state.attempts)
        finish = self._attempts(plan_id, state.attempts, log)
        self._store(plan_id, finish)
        log.info("plan finished", status=finish.status, outcome=finish.outcome, step_time_s=finish.step_time_s)
        return finish.status

    def _store(self, plan_id: str, finish: Finish) -> None:
        """Store an ending, patiently: it may have taken minutes to find."""
        for pause_s in STORE_RETRIES_S:
            try:
                self.plans.finish(plan_id, finish)
                return
            except UNAVAILABLE:
                if self.stopping.wait(pause_s):
                    break
        self.plans.finish(plan_id, finish)

    def _attempts(self, plan_id: str, attempt: int, log: structlog.stdlib.BoundLogger) -> Finish:
        body = self.plans.request(plan_id)
        reason = "the service ended while it was being solved"
        while attempt <= self.settings.job_attempts:
            try:
                return self._solve(plan_id, body, log)
            except ProcessDied as e:
                if self.stopping.is_set():
                    raise Stopping from e
                reason = str(e)
                log.warning("solver process died", attempt=attempt, reason=reason)
                restarted = self.plans.start(plan_id, self.settings.executor)
                if restarted is None:
                    return Finish(status="cancelled")
                attempt = restarted.attempts
        return Finish(status="failed", problem=json_bytes(died(plan_id, self.settings.job_attempts, reason)))

    def _solve(self, plan_id: str, body: bytes, log: structlog.stdlib.BoundLogger) -> Finish:
        limit_s = plan_request().validate_json(body).search.time_limit_s
        monitor = _Monitor(self, plan_id)
        with self.pool.process() as process:
            solved = process.solve(body, monitor.beat, limit_s + self.settings.solver_grace_s, self.settings.cancel_grace_s)
        if solved is None:
            if monitor.cancelled:
                return Finish(status="cancelled")
            log.error("solver process overran", time_limit_s=limit_s)
            return Finish(status="failed", problem=json_bytes(overran(plan_id, limit_s)))
        if isinstance(solved, Failed):
            if solved.kind == "input":
                return Finish(status="failed", problem=json_bytes(input_failure(solved.faults)))
            log.error("plan failed", kind=solved.kind, message=solved.message)
            return Finish(status="failed", problem=json_bytes(bug(plan_id, solved.kind)))
        return _finish(plan_id, solved, monitor)


class _Monitor:
    """Passes progress on to the database, at most twice and at least once a second, and notices when nobody waits any more."""

    def __init__(self, worker: Worker, plan_id: str) -> None:
        self.worker, self.plan_id = worker, plan_id
        self.latest: bytes | None = None
        self.cancelled = False
        self._news: bytes | None = None
        self._last_beat_s = 0.0

    def beat(self, progress: bytes | None) -> bool:
        if self.worker.stopping.is_set():
            raise Stopping
        if progress is not None:
            self.latest = self._news = progress
        if time.monotonic() - self._last_beat_s >= BEAT_EVERY_S:
            self._last_beat_s = time.monotonic()
            try:
                self.cancelled = self.worker.plans.beat(self.plan_id, self._news) == 0 or self.cancelled
                self._news = None
            except UNAVAILABLE as e:
                LOG.warning("progress not stored", plan_id=self.plan_id, reason=type(e).__name__)
        return not self.cancelled


def _finish(plan_id: str, solved: Solved, monitor: _Monitor) -> Finish:
    cancelled = solved.stopped == "cancelled" or (monitor.cancelled and solved.outcome == "feasible")
    status = "cancelled" if cancelled else "succeeded"
    result = solved.result if solved.has_plan or not cancelled else None
    return Finish(status=status, outcome=solved.outcome if result is not None else None, step_time_s=solved.step_time_s, progress=monitor.latest,
                  resource=resource_body(plan_id, status, monitor.latest, result))
