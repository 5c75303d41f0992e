"""Fits a calibration to observed runs: few coefficients, robust, with priors at the defaults, and none that left-out runs speak against."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.catalog.efficiency import efficiency
from solver.cost.calibration import COEFFICIENTS, MEMORY, TIMES, Coefficient
from solver.cost.least_squares import NOISE, Limits, left_out, minimum, penalty
from solver.cost.observation import Observation, Run, run_of, without_repeats
from solver.cost.responses import Numbers, Response, Table, table
from solver.cost.version import COST_MODEL_VERSION
from solver.domain.calibration import Accuracy, Calibration, Learned
from solver.domain.problem import fingerprint

GAIN = 0.02                                                # share of the left-out loss that a coefficient has to save, with many runs
GAIN_OF_RUNS = 0.75                                        # over the number of runs: the share with few, whose left-out loss is mostly chance
EVIDENCE = 0.5                                             # by how much a network that is far off lowers the fit's sum, in squares of its noise
ROUNDS = 3                                                 # fits in which the noise of the runs is found
NOISE_RUNS = 3.0                                           # runs that the default noise counts for
FEW = 3                                                    # runs under which none can be left out: priors alone decide
NARROW = 0.5                                               # standard deviation of a prior that a run or two may be held against
LEAST_ERROR = 0.01                                         # repeated measurements of one layout differ by so much
ANALYTIC_RUNS = 2.0                                        # runs that the formulas' own error counts for beside what was seen
TELLING = 0.01                                             # least change of a prediction by which a run says something of a coefficient
SLOW_NETWORK = 0.3                                         # a network slower than this share of the default needs two layouts that say so
UNLIKE_BYTES = 1.1                                         # ratio of the seconds on the network by which two layouts count as different


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fit with its account."""

    calibration: Calibration
    learned: tuple[Learned, ...]
    step_time: Accuracy | None                             # None where no run has one
    peak_memory: Accuracy | None


def fit(observations: Sequence[Observation], set_name: str) -> Calibration:
    """The calibration of a set of observed runs; see `fitted`."""
    return fitted([run_of(o) for o in observations], set_name).calibration


def fitted(runs: Sequence[Run], set_name: str) -> Fitted:
    """Fit few multipliers by robust least squares on log(predicted / measured), with log-normal priors at 1.

    Coefficients join one by one, the one first that lowers most the error of runs left out of the fit in turn; one that does not lower it clearly
    stays at 1. A network that is far off joins by its own evidence; one or two runs move what is known well beforehand. Times and memory are apart.
    Repeats of one layout count once. Deterministic: the same runs in the same order give the same digits.
    """
    distinct = without_repeats(runs)
    timed = [(r.time, r.step_time_s) for r in distinct if r.time is not None and r.step_time_s is not None]
    weighed = [(r.memory, r.peak_memory_gib) for r in distinct if r.memory is not None and r.peak_memory_gib is not None]
    times, step_time, error = _selected(TIMES, timed)
    memory, peak_memory, _ = _selected(MEMORY, weighed)
    learned = {entry.name: entry for entry in (*times, *memory)}
    seen = [r for r in distinct if r.time is not None]
    bare = Calibration(
        set_name=set_name, version="", coefficients=tuple((c.name, learned[c.name].multiplier) for c in COEFFICIENTS),
        expected_error=_expected_error(seen, error), runs=len(seen), archs=tuple(sorted({a for r in seen for a in r.archs})),
        experts=tuple(sorted({r.experts for r in seen})), most_gpus=max((r.gpus for r in seen), default=1))
    version = fingerprint([COST_MODEL_VERSION, bare])[:16]
    return Fitted(calibration=replace(bare, version=version), learned=tuple(learned[c.name] for c in COEFFICIENTS), step_time=step_time,
                  peak_memory=peak_memory)


def _selected(coefficients: Sequence[Coefficient], runs: Sequence[tuple[Response, float]]) -> tuple[list[Learned], Accuracy | None, Numbers]:
    """What is learned of each coefficient, how good the fit is, and the left-out log errors of every run."""
    if not runs:
        return [_unlearned(c, "no run measured what it changes") for c in coefficients], None, np.empty(0)
    everything = table(coefficients, [r for r, _ in runs], [m for _, m in runs])
    limits = {c.name: _limits(c, everything.of([c.name])) for c in coefficients}
    open_names = [c.name for c in coefficients if _is_told(everything.of([c.name]))]
    noise, chosen, errors = NOISE, [], everything.logs
    if len(runs) < FEW:
        chosen = [c.name for c in coefficients if c.name in open_names and c.sigma <= NARROW]
        errors, why = left_out(everything.of(chosen), [limits[n] for n in chosen]), f"it takes {FEW} runs to tell"
    else:
        for _ in range(ROUNDS):
            chosen, errors = _joined(everything, coefficients, open_names, limits, noise)
            noise = min(NOISE, float(np.sqrt((NOISE_RUNS * NOISE**2 + np.sum(np.square(errors))) / (NOISE_RUNS + len(runs)))))
        why = "moving it does not clearly help with runs that it has not seen"
    part = everything.of(chosen)
    z = minimum(part, [limits[n] for n in chosen], noise)
    multipliers = dict(zip(chosen, np.exp(z), strict=True))
    learned = [Learned(name=c.name, meaning=c.meaning, multiplier=float(multipliers[c.name])) if c.name in multipliers
               else _unlearned(c, why if c.name in open_names else "no run depends on it")
               for c in coefficients]
    return learned, Accuracy(runs=len(runs), before=_relative(everything.logs), after=_relative(part.residuals(z)[0]),
                             left_out=_relative(errors)), errors


def _joined(everything: Table, coefficients: Sequence[Coefficient], open_names: Sequence[str],
            limits: Mapping[str, Limits], noise: float) -> tuple[list[str], Numbers]:
    """The coefficients that the runs speak for, in the given order, and the left-out errors with them."""
    chosen = [c.name for c in coefficients if c.name in open_names and _is_far_off(c, everything.of([c.name]), limits[c.name])]
    errors = left_out(everything.of(chosen), [limits[n] for n in chosen], noise)
    best, least_gain = _loss(errors), max(GAIN, GAIN_OF_RUNS / len(errors))
    while True:
        trials: list[tuple[float, int, list[str], Numbers]] = []
        for name in open_names:
            if name not in chosen:
                names = [n for n in open_names if n in chosen or n == name]
                found = left_out(everything.of(names), [limits[n] for n in names], noise)
                trials.append((_loss(found), len(trials), names, found))
        nearest = min(trials, key=lambda t: t[:2], default=None)
        if nearest is None or nearest[0] >= best * (1.0 - least_gain):
            return chosen, errors
        best, _, chosen, errors = nearest


def _unlearned(coefficient: Coefficient, why: str) -> Learned:
    return Learned(name=coefficient.name, meaning=coefficient.meaning, multiplier=1.0, kept_at_default=why)


def _is_told(single: Table) -> bool:
    return bool(np.max(np.abs(single.changes)) >= TELLING)


def _limits(coefficient: Coefficient, single: Table) -> Limits:
    """Where a multiplier may go. A very slow network takes two layouts that send different bytes between nodes: one could be slow for any reason."""
    low, high = np.log(coefficient.lowest), np.log(coefficient.highest)
    if coefficient.inverse:
        slowest = single.changes[0][:, 0]
        telling = slowest[slowest >= TELLING]
        if len(telling) < 2 or telling.max() < UNLIKE_BYTES * telling.min():
            low = max(low, np.log(SLOW_NETWORK))
    return Limits(sigma=coefficient.sigma, low=float(low), high=float(high))


def _is_far_off(coefficient: Coefficient, single: Table, limits: Limits) -> bool:
    """Whether runs say by themselves that a speed is far from its default: few depend on it, so that leaving these out would leave nothing."""
    if not coefficient.inverse or limits.low >= np.log(SLOW_NETWORK):
        return False
    z = minimum(single, [limits])
    return bool(z[0] < np.log(SLOW_NETWORK) and penalty(single, np.zeros(1), [limits]) - penalty(single, z, [limits]) >= EVIDENCE)


def _loss(errors: Numbers) -> float:
    """Root of the mean square of left-out log errors."""
    return float(np.sqrt(np.mean(np.square(errors))))


def _relative(errors: Numbers) -> float:
    return float(np.mean(np.abs(np.exp(errors) - 1.0)))


def _expected_error(seen: Sequence[Run], errors: Numbers) -> float:
    """Mean error of left-out runs, drawn towards what the formulas alone are known for where runs are few, and never below the noise of repeats."""
    constants = efficiency()
    analytic = max((constants.arch(a).expected_error for r in seen for a in r.archs), default=constants.arch("default").expected_error)
    runs = len(errors)
    mean = _relative(errors) if runs else 0.0
    return max(LEAST_ERROR, (runs * mean + ANALYTIC_RUNS * analytic) / (runs + ANALYTIC_RUNS))
