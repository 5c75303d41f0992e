"""Coefficients fitted to observed runs of one cluster: multipliers on named constants of the cost model."""
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One fit of one calibration set.

    coefficients: (name, multiplier) in the order of `solver.cost.calibration.COEFFICIENTS`, 1 where nothing was learned. version: digest of the fit,
    so that an answer can be priced again; expected_error: relative error of the step time to expect from the fit's own left-out runs.
    """

    set_name: str
    version: str
    coefficients: tuple[tuple[str, float], ...]
    expected_error: float
    runs: int
