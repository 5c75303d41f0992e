"""Coefficients fitted to observed runs of one cluster: multipliers on named constants of the cost model."""
from dataclasses import dataclass

from solver.domain.bounds import PYDANTIC, Count, Index, Label, Name, NonNegative, Positive, refuse_bad_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One fit of one calibration set.

    coefficients: (name, multiplier) in the order of `solver.cost.calibration.COEFFICIENTS`, 1 where nothing was learned. version: digest of the fit,
    so that an answer can be priced again; expected_error: relative error of the step time to expect from the fit's own left-out runs, of which there
    are `runs`. archs, experts, most_gpus: what the runs were like: device architectures, whether with and without routed experts, the largest job.
    """

    __pydantic_config__ = PYDANTIC
    set_name: Name
    version: str
    coefficients: tuple[tuple[str, Positive], ...]
    expected_error: NonNegative
    runs: Index                                            # distinct ones with a measured step time
    archs: tuple[Label, ...] = ()
    experts: tuple[bool, ...] = ()
    most_gpus: Count = 1

    def __post_init__(self) -> None:
        refuse_bad_values(self)
