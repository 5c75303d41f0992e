"""The bodies of POST /v1/estimates and POST /v1/plans, as posted: names not yet resolved against the catalogue."""
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Le

from solver.domain.bounds import PYDANTIC, Label, Name, refuse_bad_values
from solver.domain.cluster import ClusterSpec
from solver.domain.degrees import Strategy
from solver.domain.model import Architecture
from solver.domain.options import Constraints, Objective, SearchOptions
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
    calibration_set: Name | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        if (self.strategy is None) == (self.plan is None):
            raise InputError(Fault(pointer="/strategy", message="exactly one of strategy and plan is needed", legal="strategy or plan"))


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
    calibration_set: Name | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)
