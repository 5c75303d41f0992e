"""What a search returns, and what it says while it runs. Mirrors `result` and `progress` of the plan resource."""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from solver.domain.estimate import Estimate, Reason
from solver.domain.launchers import Launcher, Tier
from solver.domain.options import Objective
from solver.domain.plan import Plan

Outcome = Literal["optimal", "feasible", "infeasible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another good plan, and what it loses to the best."""

    plan: Plan
    predicted: Estimate
    why_not_best: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """How many candidates a rule excluded, with one of them in words."""

    code: str
    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The best of another family: `uniform`, `only:<node group>`, `launcher:<name>`, `tier:<tier>`; priced like the answer.

    Null time: that family has no plan, `reason` says why.
    """

    name: str
    step_time_s: float | None
    reason: str | None = None
    plan: Plan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierBest:
    """The best plan of a tier. `gain`: share of the step time of the tier below that it saves; null where that tier has no plan or was not searched.

    `baseline` names the baseline that holds the plan; null: it is the answer itself.
    """

    tier: Tier
    launchers: tuple[Launcher, ...]
    step_time_s: float | None
    gain: float | None
    baseline: str | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """The smallest change found that makes an infeasible problem feasible."""

    change: str
    step_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChoice:
    """A batch size that was searched. Null times with `proved`: none of its plans ends sooner than those of sizes before it, or none fits."""

    global_batch_size: int
    steps: int
    step_time_s: float | None
    time_s: float | None                                   # of all steps
    proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """How the answer was reached."""

    engine: str
    candidates: int
    pruned: int
    solved: int
    solver_calls: int
    wall_s: float
    stopped: str                                           # proof | time_limit | cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The answer of POST /v1/plans. `bound_s` is a proved lower bound on the step time of every plan in the space; gap = 1 - bound / step time.

    For other objectives `bound_worth` takes its place: joules or money of a step, a number of GPUs,
    or seconds of the whole training, that no plan undercuts.
    """

    outcome: Outcome
    plan: Plan | None
    predicted: Estimate | None
    bound_s: float | None
    gap: float | None
    alternatives: tuple[Alternative, ...]
    rejected: tuple[Rejected, ...]
    baselines: tuple[Baseline, ...]
    reasons: tuple[Reason, ...]
    relaxation: Relaxation | None
    search: SearchReport
    objective: Objective = "throughput"
    tiers: tuple[TierBest, ...] = ()                        # from the least uneven up; throughput alone
    bound_worth: float | None = None
    batch_sizes: tuple[BatchChoice, ...] = ()              # with time_to_accuracy, as listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A state of the running search. `phase` is one of candidates, baselines, search, done."""

    phase: str
    incumbent_s: float | None
    bound_s: float | None
    gap: float | None
    candidates: int
    pruned: int
    solved: int
    elapsed_s: float
    message: str = ""


Report = Callable[[Progress], None]                        # called at least once a second while a search runs
Cancelled = Callable[[], bool]                             # polled at least once a second; True stops the search, which keeps its best plan
