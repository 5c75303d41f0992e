"""A problem: model, cluster, workload. Its fingerprint is the cache key."""
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from solver.domain.calibration import Calibration
from solver.domain.cluster import Cluster
from solver.domain.model import Architecture
from solver.domain.options import BatchPoint
from solver.domain.plan import Plan
from solver.domain.profiles import Profiles
from solver.domain.workload import TrainingWorkload, Workload
from solver.errors import Assumption


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Everything that pricing may look at. `memory_margin` is the share of capacity to be left free; profiles replace formulas,
    a calibration multiplies constants. With `batch_efficiency` the batch size is chosen among its points."""

    model: Architecture
    cluster: Cluster
    workload: Workload
    memory_margin: float = 0.08
    profiles: Profiles | None = None
    calibration: Calibration | None = None
    assumptions: tuple[Assumption, ...] = ()
    batch_efficiency: tuple[BatchPoint, ...] = ()

    def fingerprint(self) -> str:
        """sha256 over the canonical JSON of everything that can change an answer (assumptions are not part of it)."""
        body = asdict(self)
        del body["assumptions"]
        if not self.batch_efficiency:
            del body["batch_efficiency"]
        return fingerprint(body)

    def with_batch(self, sequences: int) -> "Problem":
        """The same problem at another global batch size, no longer a choice."""
        if not isinstance(self.workload, TrainingWorkload):
            return self
        return replace(self, workload=replace(self.workload, global_batch_size=sequences), batch_efficiency=())

    def of_plan(self, plan: Plan) -> "Problem":
        """The problem that a plan answers: where the batch size is a choice, with that of the plan if it is listed."""
        sequences = sum(p.micro_batches for p in plan.pipelines) * plan.micro_batch_size
        return self.with_batch(sequences) if any(p.global_batch_size == sequences for p in self.batch_efficiency) else self


def fingerprint(value: Any) -> str:
    """sha256 of canonical JSON: sorted keys, no spaces; equal values give equal digests, whatever their key order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")
