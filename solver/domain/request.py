"""The bodies of POST /v1/estimates, /v1/plans, /v1/observations and /v1/replans, as posted: names not yet resolved against the catalogue."""
from dataclasses import dataclass, fields
from typing import Annotated, Any

from annotated_types import Ge, Le, Len

from solver.domain.bounds import PYDANTIC, Count, Label, Name, NonNegative, Positive, refuse_bad_values
from solver.domain.calibration import Calibration
from solver.domain.cluster import ClusterSpec
from solver.domain.degrees import Recompute, Strategy
from solver.domain.model import Architecture
from solver.domain.options import BatchPoint, Constraints, Objective, SearchOptions
from solver.domain.plan import Plan
from solver.domain.profile_set import ProfileSet
from solver.domain.profiles import Profiles
from solver.domain.workload import Workload
from solver.errors import Fault, InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model by preset name, by Hugging Face config, or by its dimensions: exactly one."""

    __pydantic_config__ = PYDANTIC
    preset: Label | None = None
    hf_config: dict[str, Any] | None = None
    architecture: Architecture | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        given = [n for n in ("preset", "hf_config", "architecture") if getattr(self, n) is not None]
        if len(given) != 1:
            raise InputError(Fault(pointer="", message=f"a model is given in exactly one way, not {len(given)}",
                                   legal="one of preset, hf_config, architecture"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """What would this layout do? Exactly one of `strategy` and `plan`."""

    __pydantic_config__ = PYDANTIC
    model: ModelSpec
    cluster: ClusterSpec
    workload: Workload
    strategy: Strategy | None = None
    plan: Plan | None = None
    memory_margin: Annotated[float, Ge(0.0), Le(0.9)] | None = None
    profiles: Profiles | None = None
    profile_set: Name | ProfileSet | None = None           # the name of a stored set, or a set itself
    calibration_set: Name | Calibration | None = None      # the name of a stored set, or one fit of a set

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        if (self.strategy is None) == (self.plan is None):
            raise InputError(Fault(pointer="/strategy", message="exactly one of strategy and plan is needed", legal="strategy or plan"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of one run: seconds of an optimizer step (loading of data and checkpoints apart), the largest GiB that the allocator held on
    any GPU, or one of the two."""

    __pydantic_config__ = PYDANTIC
    step_time_s: Positive | None = None
    peak_memory_gib: Positive | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        if self.step_time_s is None and self.peak_memory_gib is None:
            raise InputError(Fault(pointer="", message="nothing was measured", legal="step_time_s, peak_memory_gib, or both"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationRequest(EstimateRequest):
    """One measured run: the body of an estimate, the set that it belongs to, and what was measured."""

    calibration_set: Name
    measured: Measured

    @property
    def asked(self) -> EstimateRequest:
        """The estimate of the same layout, with nothing calibrated."""
        given = {f.name: getattr(self, f.name) for f in fields(EstimateRequest)}
        return EstimateRequest(**given | {"calibration_set": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Find the best layout."""

    __pydantic_config__ = PYDANTIC
    model: ModelSpec
    cluster: ClusterSpec
    workload: Workload
    objective: Objective = "throughput"
    constraints: Constraints = Constraints()
    search: SearchOptions = SearchOptions()
    profiles: Profiles | None = None
    profile_set: Name | ProfileSet | None = None           # the name of a stored set, or a set itself
    calibration_set: Name | Calibration | None = None      # the name of a stored set, or one fit of a set
    batch_efficiency: Annotated[tuple[BatchPoint, ...], Len(1, 64)] | None = None      # with objective time_to_accuracy

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        if (self.objective == "time_to_accuracy") != (self.batch_efficiency is not None):
            raise InputError(Fault(pointer="/batch_efficiency", message="a curve and the objective 'time_to_accuracy' need each other",
                                   legal="a list of {global_batch_size, samples} with 'time_to_accuracy', else null"))
        sizes = [p.global_batch_size for p in self.batch_efficiency or ()]
        if len(set(sizes)) < len(sizes):
            raise InputError(Fault(pointer="/batch_efficiency", message="a batch size is listed twice", legal="each global_batch_size once"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanRequest:
    """The cluster has changed: go on with the old plan, or move to another? The plan's GPUs are named as in the changed cluster: those that are gone
    from it, or unavailable in it, are the ones lost."""

    __pydantic_config__ = PYDANTIC
    model: ModelSpec
    cluster: ClusterSpec
    workload: Workload
    plan: Plan
    remaining_steps: Annotated[int, Ge(0), Le(1_000_000_000)]
    restart_s: NonNegative = 0.0                           # what any move costs beside its transfers
    checkpoint_gb_s: Positive | None = None                # per GPU, of states that have no copy left; null: its network
    constraints: Constraints = Constraints()
    search: SearchOptions = SearchOptions()
    profiles: Profiles | None = None
    profile_set: Name | ProfileSet | None = None
    calibration_set: Name | Calibration | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)

    @property
    def asked(self) -> PlanRequest:
        """The search for a new plan."""
        return PlanRequest(**{f.name: getattr(self, f.name) for f in fields(PlanRequest) if f.name not in ("objective", "batch_efficiency")})


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest:
    """Stages as pools of peers: every usable GPU of the cluster is one."""

    __pydantic_config__ = PYDANTIC
    model: ModelSpec
    cluster: ClusterSpec
    workload: Workload
    stages: Annotated[int, Ge(1), Le(256)]
    micro_batch_size: Count = 1
    recompute: Recompute = "none"
    work_limit: Annotated[float, Ge(0.1), Le(60.0)] = 10.0     # of the solver, in its own units, about seconds

    def __post_init__(self) -> None:
        refuse_bad_values(self)
