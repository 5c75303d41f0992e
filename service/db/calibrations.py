"""All SQL about calibration sets, their observations and fits. A change and the fit that follows from it are one transaction."""
from dataclasses import dataclass

import sqlalchemy as sa

from service.db.engine import now_ms
from service.db.plans import new_id
from service.db.tables import CALIBRATION_FITS, CALIBRATION_SETS, OBSERVATIONS

SETS, RUNS, FITS = CALIBRATION_SETS.c, OBSERVATIONS.c, CALIBRATION_FITS.c
STATE = (SETS.id, SETS.name, SETS.revision, SETS.version, SETS.account, SETS.created_ms, SETS.changed_ms)
FIT = (FITS.version, FITS.cost_model, FITS.calibration, FITS.created_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetState:
    """A calibration set as it is now. `account` is of the newest fit, whose version is `version`."""

    id: str
    name: str
    revision: int
    version: str | None
    account: bytes | None
    created_ms: int
    changed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObservation:
    id: str
    request: bytes
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFit:
    version: str
    cost_model: str
    calibration: bytes
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """What a set becomes by a change: its newest fit with its account, or none where no observation is left."""

    version: str | None = None
    cost_model: str = ""
    calibration: bytes = b""
    account: bytes | None = None


@dataclass(frozen=True, slots=True)
class CalibrationTable:
    """Reads and writes of the tables `calibration_sets`, `observations` and `calibration_fits`."""

    engine: sa.Engine

    def find(self, owner: str, name: str) -> SetState | None:
        return self._one(SETS.owner == owner, SETS.name == name)

    def holding(self, owner: str, observation_id: str) -> SetState | None:
        """The set of this owner that an observation belongs to."""
        return self._one(SETS.owner == owner, SETS.id == sa.select(RUNS.set_id).where(RUNS.id == observation_id).scalar_subquery())

    def _one(self, *where: sa.ColumnElement[bool]) -> SetState | None:
        query = sa.select(*STATE).where(*where)
        with self.engine.connect() as c:
            row = c.execute(query).first()
        return None if row is None else SetState(**row._mapping)

    def count(self, owner: str) -> int:
        with self.engine.connect() as c:
            return c.execute(sa.select(sa.func.count()).where(SETS.owner == owner)).scalar_one()

    def page(self, owner: str, after: str | None, limit: int) -> list[tuple[SetState, int]]:
        """Sets of an owner by name, those behind the name `after`, each with the number of its observations."""
        count = sa.select(sa.func.count()).where(RUNS.set_id == SETS.id).scalar_subquery().label("observations")
        query = sa.select(*STATE, count).where(SETS.owner == owner).order_by(SETS.name).limit(limit)
        if after is not None:
            query = query.where(SETS.name > after)
        with self.engine.connect() as c:
            rows = [dict(row._mapping) for row in c.execute(query)]
        return [(SetState(**{k: v for k, v in row.items() if k != "observations"}), row["observations"]) for row in rows]

    def create(self, owner: str, name: str) -> None:
        """Make an empty set; nothing happens where it is there."""
        now = now_ms()
        try:
            with self.engine.begin() as c:
                c.execute(sa.insert(CALIBRATION_SETS).values(id=new_id(), owner=owner, name=name, revision=0, created_ms=now, changed_ms=now))
        except sa.exc.IntegrityError:
            pass

    def drop(self, owner: str, name: str) -> bool:
        """Delete a set with its observations and all of its fits."""
        with self.engine.begin() as c:
            return c.execute(sa.delete(CALIBRATION_SETS).where(SETS.owner == owner, SETS.name == name)).rowcount > 0

    def observations(self, set_id: str) -> list[StoredObservation]:
        """In the order of their arrival."""
        query = sa.select(RUNS.id, RUNS.request, RUNS.created_ms).where(RUNS.set_id == set_id).order_by(RUNS.id)
        with self.engine.connect() as c:
            return [StoredObservation(**row._mapping) for row in c.execute(query)]

    def fits(self, set_id: str) -> list[StoredFit]:
        """Every fit that was ever made of a set, newest first."""
        query = sa.select(*FIT).where(FITS.set_id == set_id).order_by(FITS.created_ms.desc(), FITS.version)
        with self.engine.connect() as c:
            return [StoredFit(**row._mapping) for row in c.execute(query)]

    def fit_count(self, set_id: str) -> int:
        with self.engine.connect() as c:
            return c.execute(sa.select(sa.func.count()).where(FITS.set_id == set_id)).scalar_one()

    def fit(self, owner: str, version: str, name: str | None = None) -> StoredFit | None:
        """A fit of one of an owner's sets, of the named one if a name is given."""
        query = (sa.select(*FIT).join(CALIBRATION_SETS, SETS.id == FITS.set_id)
                 .where(SETS.owner == owner, FITS.version == version).limit(1))
        if name is not None:
            query = query.where(SETS.name == name)
        with self.engine.connect() as c:
            row = c.execute(query).first()
        return None if row is None else StoredFit(**row._mapping)

    def change(self, state: SetState, refit: Refit, *, add: StoredObservation | None = None, remove: str | None = None) -> bool:
        """Store a change of a set and its new fit, together; false, and nothing stored, if the set has changed since `state` was read."""
        now = now_ms()
        update = (sa.update(CALIBRATION_SETS).where(SETS.id == state.id, SETS.revision == state.revision)
                  .values(revision=state.revision + 1, version=refit.version, account=refit.account, changed_ms=now))
        with self.engine.begin() as c:
            if c.execute(update).rowcount == 0:
                return False
            if add is not None:
                c.execute(sa.insert(OBSERVATIONS).values(id=add.id, set_id=state.id, request=add.request, created_ms=add.created_ms))
            if remove is not None:
                c.execute(sa.delete(OBSERVATIONS).where(RUNS.id == remove, RUNS.set_id == state.id))
            known = sa.select(FITS.version).where(FITS.set_id == state.id, FITS.version == refit.version)
            if refit.version is not None and c.execute(known).first() is None:
                c.execute(sa.insert(CALIBRATION_FITS).values(set_id=state.id, version=refit.version, cost_model=refit.cost_model,
                                                             calibration=refit.calibration, created_ms=now))
        return True
