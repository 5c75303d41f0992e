"""All SQL about stored sets of measurements. A set never changes: it is there or it is gone."""
from dataclasses import dataclass

import sqlalchemy as sa

from service.db.engine import now_ms
from service.db.tables import PROFILE_SETS

T = PROFILE_SETS.c


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSet:
    """A set without its rows."""

    name: str
    digest: str
    summary: bytes
    created_ms: int


@dataclass(frozen=True, slots=True)
class ProfileSetTable:
    """Reads and writes of the table `profile_sets`."""

    engine: sa.Engine

    def insert(self, owner: str, name: str, digest: str, summary: bytes, body: bytes, most: int) -> StoredSet | None:
        """Keep a set; None where the owner has one of this name, or `most` already."""
        created = now_ms()
        count = sa.select(sa.func.count()).where(T.owner == owner)
        try:
            with self.engine.begin() as c:
                if c.execute(count).scalar_one() >= most:
                    return None
                c.execute(sa.insert(PROFILE_SETS).values(owner=owner, name=name, digest=digest, summary=summary, body=body, created_ms=created))
        except sa.exc.IntegrityError:
            return None
        return StoredSet(name=name, digest=digest, summary=summary, created_ms=created)

    def find(self, owner: str, name: str) -> StoredSet | None:
        with self.engine.connect() as c:
            row = c.execute(sa.select(T.name, T.digest, T.summary, T.created_ms).where(T.owner == owner, T.name == name)).first()
        return None if row is None else StoredSet(**row._mapping)

    def body(self, owner: str, name: str) -> bytes | None:
        """The rows, as JSON."""
        with self.engine.connect() as c:
            return c.execute(sa.select(T.body).where(T.owner == owner, T.name == name)).scalar()

    def page(self, owner: str, after: str | None, limit: int) -> list[StoredSet]:
        """Sets of one owner by name, those behind the name `after`."""
        query = sa.select(T.name, T.digest, T.summary, T.created_ms).where(T.owner == owner).order_by(T.name).limit(limit)
        if after is not None:
            query = query.where(T.name > after)
        with self.engine.connect() as c:
            return [StoredSet(**row._mapping) for row in c.execute(query)]

    def delete(self, owner: str, name: str) -> bool:
        """False where there is none of this name."""
        with self.engine.begin() as c:
            return c.execute(sa.delete(PROFILE_SETS).where(T.owner == owner, T.name == name)).rowcount > 0
