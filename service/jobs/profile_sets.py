"""Stored sets of measurements: kept by name for the key that posted them, and put into the requests that name them."""
import dataclasses
from dataclasses import dataclass
from typing import TypeVar

from pydantic import TypeAdapter

from service.db.profile_sets import ProfileSetTable, StoredSet
from service.jobs.render import json_bytes
from service.settings import Settings
from solver.domain.profile_set import KINDS, NamedProfileSet, ProfileSet
from solver.domain.request import EstimateRequest, PlanRequest
from solver.errors import Assumption, Fault, UnknownName

Request = TypeVar("Request", bound=PlanRequest | EstimateRequest)
NAMED_AT_MOST = 20                                         # sets that a refusal lists


class NoSuchProfileSet(Exception):
    """The name names no set of this requester."""


class ProfileSetRefused(Exception):
    """The set is well, but cannot be kept under this name, or at all."""


@dataclass(frozen=True, slots=True)
class ProfileSets:
    """The use cases around stored sets."""

    settings: Settings
    table: ProfileSetTable

    def keep(self, posted: NamedProfileSet, owner: str) -> tuple[StoredSet, bool, tuple[Assumption, ...]]:
        """Store a set: (what is stored, whether it is new, what was assumed). The same figures again are the same set.

        Raises `InputError` with every fault of the set, and `ProfileSetRefused` where the name stands for other figures or there are too many sets.
        """
        from solver.importers.profile_sets import profile_set_of

        checked, assumptions = profile_set_of(posted)
        fields = {f.name: getattr(checked, f.name) for f in dataclasses.fields(ProfileSet)}
        kept = ProfileSet(**fields)
        digest = kept.fingerprint()
        devices = sorted({row.gpu for kind in KINDS for row in fields[kind]})
        summary = json_bytes({"source": kept.source, "rows": kept.rows, "devices": devices})
        stored = self.table.insert(owner, posted.name, digest, summary, json_bytes(kept), self.settings.max_profile_sets)
        if stored is not None:
            return stored, True, assumptions
        before = self.table.find(owner, posted.name)
        if before is not None and before.digest == digest:
            return before, False, assumptions
        if before is not None:
            raise ProfileSetRefused(f"{posted.name!r} stands for other figures ({before.digest}), and answers rest on them; legal: another name, or "
                                    "this one once it is deleted")
        raise ProfileSetRefused(f"there are {self.settings.max_profile_sets} sets already; legal: to delete one, or a larger MAX_PROFILE_SETS")

    def expanded(self, request: Request, owner: str) -> Request:
        """The request with the set itself in place of its name: what is stored and solved needs no other table, and stays what it is."""
        name = request.profile_set
        if not isinstance(name, str):
            return request
        body = self.table.body(owner, name)
        if body is None:
            known = ", ".join(s.name for s in self.table.page(owner, None, NAMED_AT_MOST))
            legal = known or "a set that POST /v1/profiles made"
            raise UnknownName(Fault(pointer="/profile_set", message=f"there is no profile set {name!r}", legal=legal))
        return dataclasses.replace(request, profile_set=_CONTENT.validate_json(body))

    def read(self, name: str, owner: str) -> tuple[StoredSet, bytes]:
        """A set and its rows. Raises `NoSuchProfileSet`."""
        stored, body = self.table.find(owner, name), self.table.body(owner, name)
        if stored is None or body is None:
            raise NoSuchProfileSet(f"there is no profile set {name[:80]!r}")
        return stored, body

    def drop(self, name: str, owner: str) -> None:
        """Delete a set; answers that rest on it keep what they were made with. Raises `NoSuchProfileSet`."""
        if not self.table.delete(owner, name):
            raise NoSuchProfileSet(f"there is no profile set {name[:80]!r}")


_CONTENT: TypeAdapter[ProfileSet] = TypeAdapter(ProfileSet)
