"""What a request names and the database holds, put into the request: what is stored and solved then needs no table, and stays what it is."""
import json
from dataclasses import dataclass
from typing import TypeVar

import orjson

from service.jobs.calibrations import Calibrations
from service.jobs.profile_sets import ProfileSets
from service.jobs.render import json_bytes
from solver.domain.request import EstimateRequest, PlanRequest

Request = TypeVar("Request", bound=PlanRequest | EstimateRequest)
NAMED = ("profile_set", "calibration_set")


@dataclass(frozen=True, slots=True)
class StoredSets:
    """Profile sets and calibration sets of this service."""

    profile_sets: ProfileSets
    calibrations: Calibrations

    def expanded(self, request: Request, owner: str) -> Request:
        """The request with each set itself in place of its name. Raises `UnknownName`."""
        return self.calibrations.expanded(self.profile_sets.expanded(request, owner), owner)


def with_sets(body: bytes, request: PlanRequest | EstimateRequest) -> bytes:
    """A posted body with the sets of its expanded request in place of their names; integers of any size stay as they are."""
    given = json.loads(body)
    named = {key: orjson.loads(json_bytes(getattr(request, key))) for key in NAMED if isinstance(given.get(key), str)}
    return json.dumps(given | named, separators=(",", ":")).encode() if named else body
