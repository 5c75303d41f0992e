"""What a layout is predicted to do: time, memory, and every reason why it would not run. Mirrors the answer of POST /v1/estimates."""
from dataclasses import dataclass
from typing import Literal

Risk = Literal["safe", "risky", "over"]
Basis = Literal["profile", "calibrated", "analytic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A broken rule or limit. `code` is stable (`family.rule`); `message` gives the numbers that clash, `fix` the nearest legal change."""

    code: str
    message: str
    stage: int | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """GiB per GPU of one stage. The parts sum to `total_gib`: what the allocator holds at its peak."""

    capacity_gib: float                                    # what is left for the allocator: device less context, communication buffers, fragmentation
    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    logits_gib: float
    buffers_gib: float
    total_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The stage that comes closest to its capacity decides `peak_gib`, `capacity_gib` and the risk."""

    peak_gib: float
    capacity_gib: float
    stages: tuple[StageMemory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeParts:
    """Exposed seconds of one step along the critical path; they sum to the step time."""

    compute_s: float = 0.0
    tensor_comm_s: float = 0.0
    context_comm_s: float = 0.0
    expert_comm_s: float = 0.0
    pipeline_comm_s: float = 0.0
    data_comm_s: float = 0.0
    bubble_s: float = 0.0
    optimizer_s: float = 0.0
    recompute_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """On what the answer rests, and the relative error of the step time to expect. `outside_data`: where it goes beyond what was measured."""

    basis: Basis
    expected_error: float
    outside_data: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Parameter counts: every weight once (tied embeddings once), and those that one token passes."""

    parameters: int
    active_parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The answer to "what would this layout do?". Times are null only where a broken rule leaves nothing to compute."""

    model: ModelFacts
    feasible: bool
    fits_memory: bool | None
    risk: Risk | None
    step_time_s: float | None
    tokens_per_s: float | None
    tokens_per_s_per_gpu: float | None
    model_tflops_per_gpu: float | None
    mfu: float | None
    memory: Memory | None
    time: TimeParts | None
    confidence: Confidence
    reasons: tuple[Reason, ...] = ()
    gpus: int | None = None
    price_per_hour: float | None = None
    price_per_step: float | None = None
    power_w: float | None = None                           # of the GPUs in use, at their full board power; hosts and idle GPUs left out
    energy_per_step_j: float | None = None
