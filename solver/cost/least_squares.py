"""Robust least squares over a table of responses, with priors; and its errors on runs left out in turn."""
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.cost.responses import Numbers, Table

NOISE = 0.1                                                # log error of a single run that nothing stands for, by default
FOLDS = 10                                                 # more runs than these are left out several at a time
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is known beforehand of the logarithm of one multiplier: normal around 0 with `sigma`, between `low` and `high`."""

    sigma: float
    low: float
    high: float


def minimum(runs: Table, limits: Sequence[Limits], noise: float = NOISE, kept: Mask | None = None, start: Numbers | None = None) -> Numbers:
    """Logarithms of the multipliers that minimise sum over runs of 2 (sqrt(1 + (r / noise)^2) - 1) plus sum over coefficients of (z / sigma)^2.

    Errors beyond the noise count by their size, not by their square.
    """
    if not limits:
        return np.empty(0)
    from scipy.optimize import least_squares  # slow to import, and only needed here

    sigma = np.array([limit.sigma for limit in limits])
    rows = np.ones(len(runs.logs), dtype=bool) if kept is None else kept

    def residuals(z: Numbers) -> Numbers:
        r = runs.residuals(z)[0][rows] / noise
        return np.concatenate((np.sign(r) * root_loss(r), z / sigma))

    def slopes(z: Numbers) -> Numbers:
        values, by_z = runs.residuals(z)
        r = values[rows] / noise
        root = root_loss(r)
        steep = np.where(root > 1e-6, np.abs(r) / (np.sqrt(1.0 + r * r) * np.maximum(root, 1e-9)), 1.0)
        return np.vstack((steep[:, None] * by_z[rows] / noise, np.diag(1.0 / sigma)))

    bounds = [limit.low for limit in limits], [limit.high for limit in limits]
    found = least_squares(residuals, np.zeros(len(limits)) if start is None else start, slopes, bounds=bounds, x_scale=sigma, xtol=1e-6, ftol=1e-8,
                          gtol=1e-8)
    return np.asarray(found.x, dtype=np.float64)


def penalty(runs: Table, z: Numbers, limits: Sequence[Limits], noise: float = NOISE) -> float:
    """What `minimum` makes small, at the logarithms z."""
    r = runs.residuals(z)[0] / noise
    return float((root_loss(r) ** 2).sum() + ((z / np.array([limit.sigma for limit in limits])) ** 2).sum())


def left_out(runs: Table, limits: Sequence[Limits], noise: float = NOISE) -> Numbers:
    """log(predicted / measured) of every run by a fit that has not seen it: each by itself, or a tenth of many at a time."""
    n = len(runs.logs)
    start = minimum(runs, limits, noise)
    errors = np.empty(n)
    for fold in range(min(n, FOLDS)):
        out = np.arange(n) % FOLDS == fold
        z = minimum(runs, limits, noise, ~out, start)
        errors[out] = runs.residuals(z)[0][out]
    return errors


def root_loss(r: Numbers) -> Numbers:
    """Square root of the pseudo-Huber loss 2 (sqrt(1 + r^2) - 1)."""
    return np.sqrt(2.0 * (np.sqrt(1.0 + r * r) - 1.0))
