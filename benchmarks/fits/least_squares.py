"""Robust least squares in the logarithm of positive parameters, with log-normal priors. Deterministic, numpy alone."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]                                    # row numbers of a table
HUBER = 0.1                                                # relative errors beyond this count linearly
NOISE = 0.1                                                # relative error of one row that a prior of one sigma weighs as much as
STEPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A positive parameter: where the fit starts, which is where its prior lies; sigma (of its logarithm) None: no prior."""

    name: str
    start: float
    lowest: float
    highest: float
    sigma: float | None = None


def fitted(parameters: Sequence[Parameter], log_errors: Callable[[Floats], Floats], weights: Floats) -> Floats:
    """The parameters that make `log_errors` (log of predicted over measured, a row each) least: Levenberg-Marquardt on a Huber loss, the priors as
    further rows."""
    lowest, highest = np.log([p.lowest for p in parameters]), np.log([p.highest for p in parameters])
    prior = np.log([p.start for p in parameters])
    pull = np.array([NOISE / p.sigma if p.sigma else 0.0 for p in parameters])
    weights = np.concatenate([weights, np.ones(len(parameters))])

    def errors(x: Floats) -> Floats:
        return np.concatenate([log_errors(np.exp(x)), (x - prior) * pull])

    x = prior.copy()
    error = errors(x)
    loss, damping = _loss(error, weights), 1e-2
    for _ in range(STEPS):
        jacobian = np.stack([(errors(x + step) - error) / 1e-5 for step in np.eye(len(x)) * 1e-5], axis=1)
        row_weights = weights * np.minimum(1.0, HUBER / np.maximum(np.abs(error), 1e-12))
        normal, gradient = jacobian.T @ (jacobian * row_weights[:, None]), jacobian.T @ (row_weights * error)
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)) + 1e-12 * np.eye(len(x)), -gradient)
            tried = np.clip(x + np.clip(step, -1.0, 1.0), lowest, highest)
            tried_error = errors(tried)
            tried_loss = _loss(tried_error, weights)
            if tried_loss < loss:
                break
            damping *= 4.0
        else:
            break
        done = loss - tried_loss < 1e-9 * loss
        x, error, loss, damping = tried, tried_error, tried_loss, max(damping / 5.0, 1e-8)
        if done:
            break
    return np.exp(x)


def _loss(error: Floats, weights: Floats) -> float:
    size = np.abs(error)
    return float(np.sum(weights * np.where(size <= HUBER, 0.5 * size * size, HUBER * (size - 0.5 * HUBER))))


def held_out(fit: Callable[[Rows], Floats], log_errors: Callable[[Floats, Rows], Floats], folds: Rows) -> Floats:
    """Relative error of every row as predicted by a fit without its fold."""
    found = np.empty(len(folds))
    rows = np.arange(len(folds))
    for fold in np.unique(folds):
        inside = rows[folds == fold]
        found[inside] = np.expm1(log_errors(fit(rows[folds != fold]), inside))
    return found


def spread(errors: Floats) -> tuple[float, float]:
    """Median and 90th percentile of the size of relative errors."""
    size = np.abs(errors)
    return float(np.median(size)), float(np.percentile(size, 90))
