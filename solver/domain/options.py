"""What the user may ask of the search: objective, constraints, limits."""
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le, Len

from solver.domain.bounds import MAX_LAYERS, PYDANTIC, Count, Positive, refuse_bad_values
from solver.domain.degrees import Recompute, ScheduleName, Strategy, ZeroStage
from solver.domain.launchers import Launcher, LauncherRules, Tier, narrowest, rules_of

Objective = Literal["throughput", "cost", "energy", "fewest_gpus", "latency", "robust", "pareto", "time_to_accuracy"]
Engine = Literal["auto", "cp_sat", "dynamic_program"]
Counts = Annotated[tuple[Count, ...], Len(1, 256)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Allowed values; null leaves a choice free."""

    __pydantic_config__ = PYDANTIC
    tp: Counts | None = None
    cp: Counts | None = None
    dp: Counts | None = None                               # number of pipelines
    ep: Counts | None = None
    max_pp: Annotated[int, Ge(1), Le(MAX_LAYERS)] | None = None
    micro_batch_size: Counts | None = None
    recompute: Annotated[tuple[Recompute, ...], Len(1, 4)] | None = None
    zero_stage: Annotated[tuple[ZeroStage, ...], Len(1, 4)] | None = None
    schedules: Annotated[tuple[ScheduleName, ...], Len(1, 16)] | None = None
    virtual_stages: Counts | None = None
    launcher: Launcher | None = None
    tier: Tier | None = None                               # how much stages may differ
    uniform: bool = False                                  # as tier "uneven_layers"
    memory_margin: Annotated[float, Ge(0.0), Le(0.9)] | None = None
    max_price_per_hour: Positive | None = None
    max_step_time_s: Positive | None = None                # slower plans do not count
    node_groups: Annotated[tuple[str, ...], Len(1, 64)] | None = None
    candidates: Annotated[tuple[Strategy, ...], Len(1, 10_000)] | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)

    @property
    def rules(self) -> LauncherRules:
        """What the launcher accepts; everything where none is named."""
        return rules_of(self.launcher)

    @property
    def allowed_tier(self) -> Tier:
        """How much stages may differ, by the tier, `uniform` and the launcher together."""
        return narrowest(self.tier or "uneven_degrees", "uneven_layers" if self.uniform else "uneven_degrees", self.rules.tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """How many samples (sequences) training takes to its target at one batch size."""

    __pydantic_config__ = PYDANTIC
    global_batch_size: Annotated[int, Ge(1), Le(4_194_304)]
    samples: Annotated[int, Ge(1), Le(10**15)]

    def __post_init__(self) -> None:
        refuse_bad_values(self)

    @property
    def steps(self) -> int:
        """Whole optimizer steps."""
        return -(-self.samples // self.global_batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Limits and choices of the search itself."""

    __pydantic_config__ = PYDANTIC
    time_limit_s: Annotated[float, Ge(0.1), Le(3600.0)] = 30.0
    alternatives: Annotated[int, Ge(0), Le(50)] = 5
    seed: Annotated[int, Ge(0), Le(2**31 - 1)] = 0
    engine: Engine = "auto"

    def __post_init__(self) -> None:
        refuse_bad_values(self)
