"""All SQL about plans. Every change of state is one conditional UPDATE, so that concurrent requests and workers cannot overtake each other."""
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.db.engine import now_ms
from service.db.tables import PLAN_EVENTS, PLANS

UNFINISHED = ("queued", "running")
PROVED = ("optimal", "infeasible")
T = PLANS.c


def new_id() -> str:
    """32 hex digits that sort by time: milliseconds, then 80 random bits."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlan:
    """What is known of a plan when it is asked for."""

    owner: str
    cache_key: str
    request_key: str
    flight: str | None
    time_limit_s: float
    model_name: str
    cluster_name: str
    versions: bytes
    request: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """What changes while a plan is solved."""

    id: str
    status: str
    requesters: int
    attempts: int
    progress: bytes | None
    problem: bytes | None
    resource: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """A plan in a list."""

    id: str
    status: str
    outcome: str | None
    model_name: str
    cluster_name: str
    step_time_s: float | None
    created_ms: int
    finished_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """How a plan ended."""

    status: str
    outcome: str | None = None
    step_time_s: float | None = None
    progress: bytes | None = None
    resource: bytes | None = None
    problem: bytes | None = None


@dataclass(frozen=True, slots=True)
class PlanTable:
    """Reads and writes of the tables `plans` and `plan_events`."""

    engine: sa.Engine

    def cached(self, owner: str, column: str, key: str, time_limit_s: float) -> tuple[str, bytes] | None:
        """The newest answer that still stands: proved, or reached in no less time than is offered now."""
        query = (sa.select(T.id, T.resource).where(T.owner == owner, T[column] == key, T.status == "succeeded",
                                                   sa.or_(T.outcome.in_(PROVED), T.time_limit_s >= time_limit_s))
                 .order_by(T.id.desc()).limit(1))
        with self.engine.connect() as c:
            row = c.execute(query).first()
        return (row.id, row.resource) if row is not None and row.resource is not None else None

    def attach(self, flight: str) -> str | None:
        """Join the equal request in flight, if there is one that is not being given up; its id."""
        update = (sa.update(PLANS).where(T.flight == flight, T.status.in_(UNFINISHED), T.requesters > 0)
                  .values(requesters=T.requesters + 1).returning(T.id))
        with self.engine.begin() as c:
            return c.execute(update).scalar()

    def insert(self, new: NewPlan) -> str | None:
        """Queue a plan; None when an equal one took off in the meantime."""
        plan_id = new_id()
        values = {f: getattr(new, f) for f in new.__dataclass_fields__}
        try:
            with self.engine.begin() as c:
                c.execute(sa.insert(PLANS).values(id=plan_id, status="queued", requesters=1, attempts=0, created_ms=now_ms(), **values))
        except sa.exc.IntegrityError:
            return None
        return plan_id

    def unfinished(self) -> int:
        with self.engine.connect() as c:
            return c.execute(sa.select(sa.func.count()).where(T.status.in_(UNFINISHED))).scalar_one()

    def counts(self) -> dict[str, int]:
        """Number of plans by status."""
        with self.engine.connect() as c:
            return {row.status: row.plans for row in c.execute(sa.select(T.status, sa.func.count().label("plans")).group_by(T.status))}

    def unfinished_ids(self) -> Sequence[str]:
        with self.engine.connect() as c:
            return c.execute(sa.select(T.id).where(T.status.in_(UNFINISHED)).order_by(T.id)).scalars().all()

    def state(self, plan_id: str, owner: str | None = None) -> PlanState | None:
        """The state of a plan; with `owner`, only if it belongs to that key."""
        query = sa.select(T.id, T.status, T.requesters, T.attempts, T.progress, T.problem, T.resource).where(T.id == plan_id)
        if owner is not None:
            query = query.where(T.owner == owner)
        with self.engine.connect() as c:
            row = c.execute(query).first()
        return None if row is None else PlanState(**row._mapping)

    def request(self, plan_id: str) -> bytes:
        with self.engine.connect() as c:
            return c.execute(sa.select(T.request).where(T.id == plan_id)).scalar_one()

    def start(self, plan_id: str, executor: str) -> PlanState | None:
        """Take a plan up, or up again; None if it is finished or nobody waits for it."""
        update = (sa.update(PLANS).where(T.id == plan_id, T.status.in_(UNFINISHED), T.requesters > 0)
                  .values(status="running", attempts=T.attempts + 1, executor=executor, heartbeat_ms=now_ms(),
                          started_ms=sa.func.coalesce(T.started_ms, now_ms())))
        with self.engine.begin() as c:
            if c.execute(update).rowcount == 0:
                return None
        return self.state(plan_id)

    def take_orphans(self, silent_s: float) -> Sequence[str]:
        """Plans that were begun and that no worker has spoken of for so long; only one caller gets each."""
        now = now_ms()
        update = (sa.update(PLANS).where(T.status.in_(UNFINISHED), T.heartbeat_ms < now - int(silent_s * 1000))
                  .values(heartbeat_ms=now).returning(T.id))
        with self.engine.begin() as c:
            return c.execute(update).scalars().all()

    def pause(self, plan_id: str) -> None:
        """Give a plan back that was stopped through no fault of its own; the attempt does not count."""
        with self.engine.begin() as c:
            c.execute(sa.update(PLANS).where(T.id == plan_id, T.status == "running").values(status="queued", attempts=T.attempts - 1))

    def beat(self, plan_id: str, progress: bytes | None) -> int:
        """Say that a plan is being worked on, store news, and learn how many still wait for it."""
        values: dict[str, Any] = {"heartbeat_ms": now_ms()}
        if progress is not None:
            values["progress"] = progress
        with self.engine.begin() as c:
            waiting = c.execute(sa.update(PLANS).where(T.id == plan_id).values(**values).returning(T.requesters)).scalar()
            if progress is not None:
                self._append(c, plan_id, progress)
        return waiting or 0

    def finish(self, plan_id: str, finish: Finish) -> bool:
        """Store how a plan ended; false if it had ended before."""
        values = {f: getattr(finish, f) for f in finish.__dataclass_fields__}
        update = sa.update(PLANS).where(T.id == plan_id, T.status.in_(UNFINISHED)).values(flight=None, finished_ms=now_ms(), **values)
        with self.engine.begin() as c:
            done = c.execute(update).rowcount > 0
            if done and finish.progress is not None:
                self._append(c, plan_id, finish.progress)
        return done

    def detach(self, plan_id: str, owner: str) -> PlanState | None:
        """One requester leaves. The last one ends a queued plan at once; a running one is stopped by its worker at the next beat."""
        mine = (T.id == plan_id, T.owner == owner)
        with self.engine.begin() as c:
            c.execute(sa.update(PLANS).where(*mine, T.status.in_(UNFINISHED), T.requesters > 0).values(requesters=T.requesters - 1))
            c.execute(sa.update(PLANS).where(*mine, T.status == "running", T.requesters == 0).values(flight=None))
            c.execute(sa.update(PLANS).where(*mine, T.status == "queued", T.requesters == 0)
                      .values(status="cancelled", flight=None, finished_ms=now_ms()))
        return self.state(plan_id, owner)

    def page(self, owner: str, before: str | None, limit: int, status: str | None = None) -> list[PlanLine]:
        """Plans of one owner, newest first, older than the id `before`."""
        query = (sa.select(T.id, T.status, T.outcome, T.model_name, T.cluster_name, T.step_time_s, T.created_ms, T.finished_ms)
                 .where(T.owner == owner).order_by(T.id.desc()).limit(limit))
        if before is not None:
            query = query.where(T.id < before)
        if status is not None:
            query = query.where(T.status == status)
        with self.engine.connect() as c:
            return [PlanLine(**row._mapping) for row in c.execute(query)]

    def events(self, plan_id: str, after: int) -> list[tuple[int, bytes]]:
        """Progress of a plan since event `after`, oldest first."""
        query = (sa.select(PLAN_EVENTS.c.seq, PLAN_EVENTS.c.body).where(PLAN_EVENTS.c.plan_id == plan_id, PLAN_EVENTS.c.seq > after)
                 .order_by(PLAN_EVENTS.c.seq).limit(1000))
        with self.engine.connect() as c:
            return [(row.seq, row.body) for row in c.execute(query)]

    @staticmethod
    def _append(c: sa.Connection, plan_id: str, body: bytes) -> None:
        last = sa.select(sa.func.coalesce(sa.func.max(PLAN_EVENTS.c.seq), 0)).where(PLAN_EVENTS.c.plan_id == plan_id)
        c.execute(sa.insert(PLAN_EVENTS).values(plan_id=plan_id, seq=c.execute(last).scalar_one() + 1, body=body))
