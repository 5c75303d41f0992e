"""Calibration sets: measured runs kept by name for the key that posted them, fitted anew with every change, and put into requests that name them."""
import dataclasses
import functools
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter

from service.db.calibrations import CalibrationTable, Refit, SetState, StoredFit, StoredObservation
from service.db.engine import now_ms
from service.db.plans import new_id
from service.jobs.port import Planner
from service.jobs.render import json_bytes
from service.settings import Settings
from solver.domain.calibration import Calibration
from solver.domain.request import EstimateRequest, ObservationRequest, PlanRequest
from solver.errors import Fault, InputError, UnknownName

if TYPE_CHECKING:
    from solver.cost.observation import Run

Request = TypeVar("Request", bound=PlanRequest | EstimateRequest)
TRIES = 10                                                 # of a change, while others change the same set
RUNS_PRICED = 512                                          # kept in memory, so that a refit prices nothing again
MAX_REQUEST_BYTES = 1 << 18                                # of one observation
NAMED_AT_MOST = 20                                         # sets that a refusal lists


class NoSuchCalibrationSet(Exception):
    """The name names no set of this requester."""


class NoSuchObservation(Exception):
    """The id names no observation of this requester."""


class CalibrationSetFull(Exception):
    """The observation is well, but there is no room for it."""


class CalibrationSetBusy(Exception):
    """Others change the set faster than it can be fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A change of a set: the observation, and the account of the fit that follows; None where no observation is left."""

    id: str
    set_name: str
    account: bytes | None


class Calibrations:
    """The use cases around calibration sets."""

    def __init__(self, settings: Settings, table: CalibrationTable, planner: Planner) -> None:
        self._settings, self.table, self._planner = settings, table, planner
        self._changing = threading.Lock()                  # one change at a time in this process: a lost race is a fit made in vain
        self._run = functools.lru_cache(RUNS_PRICED)(lambda request, _version: planner.run(_OBSERVATION.validate_json(request)))

    def expanded(self, request: Request, owner: str) -> Request:
        """The request with a fit in place of the name of its set: the newest, or the one that a posted plan was made with.

        A plan that names its calibration is priced with it though the request names no set. Raises `UnknownName`.
        """
        named = request.calibration_set
        if named is not None and not isinstance(named, str):
            return request
        plan = request.plan if isinstance(request, EstimateRequest) else None
        version = plan.versions.calibration if plan is not None and plan.versions is not None else ""
        kept = self.table.fit(owner, version, named) if version else None
        if kept is not None:
            return dataclasses.replace(request, calibration_set=_CALIBRATION.validate_json(kept.calibration))
        return request if named is None else dataclasses.replace(request, calibration_set=self.newest(owner, named))

    def newest(self, owner: str, name: str) -> Calibration:
        """The newest fit of a set; made anew where the cost model is another than it was fitted with. Raises `UnknownName`."""
        for _ in range(TRIES):
            state = self.table.find(owner, name)
            fit = self._fit_of(owner, state) if state is not None else None
            if state is None or fit is None:
                raise self._unknown(owner, name, state)
            if fit.cost_model == self._cost_model:
                return _CALIBRATION.validate_json(fit.calibration)
            refit = self._refitted(name, self.table.observations(state.id))
            self.table.change(state, refit)
        raise CalibrationSetBusy(f"{name!r} changes faster than it can be fitted")

    def observe(self, owner: str, request: ObservationRequest, raw: bytes) -> Observed:
        """Add a measured run to its set, which begins with its first one, and fit the set anew.

        Raises `InputError` where the run cannot be, or does not belong to the others, and `CalibrationSetFull`.
        """
        if len(raw) > MAX_REQUEST_BYTES:
            raise InputError(Fault(pointer="", message=f"an observation of {len(raw)} bytes", legal=f"at most {MAX_REQUEST_BYTES} bytes"))
        name, run = request.calibration_set, self._run(raw, self._cost_model)
        added = StoredObservation(id=new_id(), request=raw, created_ms=now_ms())
        with self._changing:
            return self._added(owner, name, run, added)

    def _added(self, owner: str, name: str, run: "Run", added: StoredObservation) -> Observed:
        for _ in range(TRIES):
            state = self.table.find(owner, name)
            others = self.table.observations(state.id) if state is not None else []
            self._planner.refuse_absurd(run, self._runs(others)[1])
            self._refuse_full(owner, state, len(others))
            refit = self._refitted(name, [*others, added])
            if state is None:
                self.table.create(owner, name)
                state = self.table.find(owner, name)
            if state is not None and self.table.change(state, refit, add=added):
                return Observed(id=added.id, set_name=name, account=refit.account)
        raise CalibrationSetBusy(f"{name!r} changes faster than it can be fitted")

    def withdraw(self, owner: str, observation_id: str) -> Observed:
        """Take an observation back and fit its set anew without it; answers that rest on earlier fits stay. Raises `NoSuchObservation`."""
        with self._changing:
            return self._withdrawn(owner, observation_id)

    def _withdrawn(self, owner: str, observation_id: str) -> Observed:
        for _ in range(TRIES):
            state = self.table.holding(owner, observation_id)
            if state is None:
                raise NoSuchObservation(f"there is no observation {observation_id[:80]!r}")
            refit = self._refitted(state.name, [o for o in self.table.observations(state.id) if o.id != observation_id])
            if self.table.change(state, refit, remove=observation_id):
                return Observed(id=observation_id, set_name=state.name, account=refit.account)
        raise CalibrationSetBusy(f"the set of {observation_id[:80]!r} changes faster than it can be fitted")

    def read(self, owner: str, name: str) -> tuple[SetState, list[StoredObservation], list[StoredFit]]:
        """A set with its observations, and every fit that was made of it, newest first. Raises `NoSuchCalibrationSet`."""
        state = self.table.find(owner, name)
        if state is None:
            raise NoSuchCalibrationSet(f"there is no calibration set {name[:80]!r}")
        return state, self.table.observations(state.id), self.table.fits(state.id)

    def observation(self, owner: str, observation_id: str) -> tuple[SetState, StoredObservation]:
        """One observation and its set. Raises `NoSuchObservation`."""
        state = self.table.holding(owner, observation_id)
        found = [o for o in self.table.observations(state.id) if o.id == observation_id] if state is not None else []
        if state is None or not found:
            raise NoSuchObservation(f"there is no observation {observation_id[:80]!r}")
        return state, found[0]

    def drop(self, owner: str, name: str) -> None:
        """Delete a set with all of its fits; plans that were made with them stay. Raises `NoSuchCalibrationSet`."""
        if not self.table.drop(owner, name):
            raise NoSuchCalibrationSet(f"there is no calibration set {name[:80]!r}")

    @property
    def _cost_model(self) -> str:
        return self._planner.versions().cost_model

    def _fit_of(self, owner: str, state: SetState) -> StoredFit | None:
        return self.table.fit(owner, state.version, state.name) if state.version is not None else None

    def _unknown(self, owner: str, name: str, state: SetState | None) -> UnknownName:
        known = [s.name for s, _ in self.table.page(owner, None, NAMED_AT_MOST) if s.version is not None]
        what = f"there is no calibration set {name!r}" if state is None else f"the calibration set {name!r} holds no observation"
        return UnknownName(Fault(pointer="/calibration_set", message=what, legal=", ".join(known) or "a set that POST /v1/observations made"))

    def _refuse_full(self, owner: str, state: SetState | None, observations: int) -> None:
        most_sets, most = self._settings.max_calibration_sets, self._settings.max_observations
        if state is None and self.table.count(owner) >= most_sets:
            raise CalibrationSetFull(f"there are {most_sets} calibration sets already; legal: to delete one, or a larger MAX_CALIBRATION_SETS")
        if observations >= most:
            raise CalibrationSetFull(f"the set holds {most} observations already; legal: to withdraw some, another set, or a larger MAX_OBSERVATIONS")
        if state is not None and self.table.fit_count(state.id) >= self._settings.max_calibration_fits:
            raise CalibrationSetFull(f"{self._settings.max_calibration_fits} fits of this set are kept, so that answers can be priced again; "
                                     "legal: another set, or a larger MAX_CALIBRATION_FITS")

    def _runs(self, observations: Sequence[StoredObservation]) -> "tuple[list[StoredObservation], list[Run]]":
        """The observations that this version can price, with their runs."""
        kept, runs = [], []
        for observation in observations:
            try:
                runs.append(self._run(observation.request, self._cost_model))
            except (InputError, ValueError):                # stored by a version that covered more
                continue
            kept.append(observation)
        return kept, runs

    def _refitted(self, name: str, observations: Sequence[StoredObservation]) -> Refit:
        kept, runs = self._runs(observations)
        if not runs:
            return Refit()
        from solver.cost.observation import predicted

        fitted = self._planner.fitted(runs, name)
        calibration = fitted.calibration
        rows = [{"id": observation.id, "created_ms": observation.created_ms,
                 "measured": {"step_time_s": run.step_time_s, "peak_memory_gib": run.peak_memory_gib},
                 "before": predicted(run, None), "after": predicted(run, calibration)} for observation, run in zip(kept, runs, strict=True)]
        account = {"fit": _account_of(fitted), "observations": rows}
        return Refit(version=calibration.version, cost_model=self._cost_model, calibration=json_bytes(asdict(calibration)),
                     account=json_bytes(account))


def _account_of(fitted: Any) -> dict[str, Any]:
    calibration = fitted.calibration
    return {"version": calibration.version, "runs": calibration.runs, "expected_error": calibration.expected_error, "coefficients": fitted.learned,
            "step_time": fitted.step_time, "peak_memory": fitted.peak_memory}


_CALIBRATION: TypeAdapter[Calibration] = TypeAdapter(Calibration)
_OBSERVATION: TypeAdapter[ObservationRequest] = TypeAdapter(ObservationRequest)
