"""All SQL about idempotency keys (the request header Idempotency-Key): scoped to owner and route, kept 24 hours."""
from dataclasses import dataclass

import sqlalchemy as sa

from service.db.engine import now_ms
from service.db.tables import IDEMPOTENCY

KEPT_MS = 24 * 3600 * 1000
T = IDEMPOTENCY.c


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """What was answered to the first request of a key; `status` null while that one is still being answered."""

    request_hash: str
    status: int | None
    headers: bytes | None
    body: bytes | None


@dataclass(frozen=True, slots=True)
class IdempotencyTable:
    """Reads and writes of the table `idempotency_keys`."""

    engine: sa.Engine

    def claim(self, owner: str, route: str, key: str, request_hash: str, patience_s: float) -> StoredAnswer | None:
        """Take a key, or learn what became of it. A claim without answer lapses after `patience_s`: its server has died."""
        this = (T.owner == owner, T.route == route, T.key == key)
        now = now_ms()
        lapsed = sa.or_(T.created_ms < now - KEPT_MS, sa.and_(T.status.is_(None), T.created_ms < now - int(patience_s * 1000)))
        try:
            with self.engine.begin() as c:
                c.execute(sa.delete(IDEMPOTENCY).where(lapsed))
                c.execute(sa.insert(IDEMPOTENCY).values(owner=owner, route=route, key=key, request_hash=request_hash, created_ms=now))
        except sa.exc.IntegrityError:
            with self.engine.connect() as c:
                row = c.execute(sa.select(T.request_hash, T.status, T.headers, T.body).where(*this)).first()
            if row is not None:
                return StoredAnswer(**row._mapping)
            return self.claim(owner, route, key, request_hash, patience_s)
        return None

    def keep(self, owner: str, route: str, key: str, status: int, headers: bytes, body: bytes) -> None:
        """Store the answer of a claimed key."""
        with self.engine.begin() as c:
            c.execute(sa.update(IDEMPOTENCY).where(T.owner == owner, T.route == route, T.key == key)
                      .values(status=status, headers=headers, body=body))

    def release(self, owner: str, route: str, key: str) -> None:
        """Give a claimed key back: its request failed on our side and may be tried again."""
        with self.engine.begin() as c:
            c.execute(sa.delete(IDEMPOTENCY).where(T.owner == owner, T.route == route, T.key == key))
