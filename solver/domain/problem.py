"""A problem: model, cluster, workload. Its fingerprint is the cache key."""
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from solver.domain.calibration import Calibration
from solver.domain.cluster import Cluster
from solver.domain.model import Architecture
from solver.domain.profiles import Profiles
from solver.domain.workload import Workload
from solver.errors import Assumption


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Everything that pricing may look at. `memory_margin` is the share of capacity to be left free; profiles replace formulas,
    a calibration multiplies constants."""

    model: Architecture
    cluster: Cluster
    workload: Workload
    memory_margin: float = 0.08
    profiles: Profiles | None = None
    calibration: Calibration | None = None
    assumptions: tuple[Assumption, ...] = ()

    def fingerprint(self) -> str:
        """sha256 over the canonical JSON of everything that can change an answer (assumptions are not part of it)."""
        body = asdict(self)
        del body["assumptions"]
        return fingerprint(body)


def fingerprint(value: Any) -> str:
    """sha256 of canonical JSON: sorted keys, no spaces; equal values give equal digests, whatever their key order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")
