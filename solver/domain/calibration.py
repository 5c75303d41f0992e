"""Coefficients fitted to observed runs of one cluster: multipliers on named constants of the cost model."""
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Len

from solver.domain.bounds import PYDANTIC, Count, Index, Label, Name, NonNegative, Pattern, Positive, refuse_bad_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One fit of one calibration set.

    coefficients: (name, multiplier) in the order of `solver.cost.calibration.COEFFICIENTS`, 1 where nothing was learned. version: digest of the fit,
    so that an answer can be priced again; expected_error: relative error of the step time to expect from the fit's own left-out runs, of which there
    are `runs`. archs, experts, most_gpus: what the runs were like: device architectures, whether with and without routed experts, the largest job.
    """

    __pydantic_config__ = PYDANTIC
    set_name: Name
    version: Annotated[str, Pattern(r"[A-Za-z0-9._-]{0,64}")]
    coefficients: Annotated[tuple[tuple[Label, Positive], ...], Len(0, 64)]
    expected_error: NonNegative
    runs: Index                                            # distinct ones with a measured step time
    archs: Annotated[tuple[Label, ...], Len(0, 64)] = ()
    experts: Annotated[tuple[bool, ...], Len(0, 2)] = ()
    most_gpus: Count = 1

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What became of one coefficient: its multiplier, and why it stayed at 1 where it did."""

    name: str
    meaning: str
    multiplier: float
    kept_at_default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Mean of |predicted / measured - 1| over runs: with nothing calibrated, with the fit, and with fits that had not seen the run at hand."""

    runs: int
    before: float
    after: float
    left_out: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The two figures that a run may have measured."""

    step_time_s: float | None
    peak_memory_gib: float
