"""The constants that published training runs determine, fitted; and how well each source is predicted by a fit that has not seen it.

`python -m tests.accuracy.fitting RUNS.csv [--left-out FILE] [--write]` prints old and new constants. What may move, and how far it may be believed to
lie from a first guess, is in `fit.toml`: everything that a table of operators or collectives measures stays as measured.
"""
import argparse
import math
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from solver.catalog.efficiency import Efficiency, efficiency_of
from solver.cost.estimate import estimate
from solver.cost.version import COST_MODEL_VERSION
from solver.domain.problem import Problem
from tests.accuracy.rows import Row, load
from tests.accuracy.scoring import macro

Floats = NDArray[np.float64]
HERE = Path(__file__).parent
STEP = 0.03                                                # of the logarithm of a constant, for differences
REACH = 0.35                                               # furthest that one round moves a logarithm
ROBUST = 0.08                                              # errors beyond this count by their size, not its square
RIVALS = 0.2                                               # layouts of one job this much slower than its best compete with it
APART = 0.03                                               # as ROBUST, of what rivals' errors differ from their mean
CHOICE = 0.3                                               # weight of telling rivals apart, against that of being right


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A constant, or several that move together by one factor. `prior` is the value believed beforehand (of the first), `sigma` the standard
    deviation of the factor's logarithm; `paths` name the constants in efficiency.toml."""

    paths: tuple[str, ...]
    prior: float
    sigma: float
    why: str


def parameters(path: Path = HERE / "fit.toml") -> tuple[Parameter, ...]:
    """What may be fitted."""
    return tuple(Parameter(paths=tuple(p["paths"]), prior=p["prior"], sigma=p["sigma"], why=p["why"])
                 for p in tomllib.loads(path.read_text())["parameter"])


def shipped() -> dict[str, Any]:
    """The constants of efficiency.toml, as parsed."""
    return tomllib.loads(resources.files("solver.catalog").joinpath("efficiency.toml").read_text(encoding="utf-8"))


def value_at(tree: Mapping[str, Any], path: str) -> float:
    """The number at a dotted path."""
    found: Any = tree
    for key in _keys(path):
        found = found[key]
    return float(found)


def moved(tree: Mapping[str, Any], chosen: Sequence[Parameter], factors: Sequence[float]) -> dict[str, Any]:
    """A copy of the tree with every parameter's constants multiplied by its factor."""
    copy = _copied(tree)
    for parameter, factor in zip(chosen, factors, strict=True):
        for path in parameter.paths:
            *way, last = _keys(path)
            at: Any = copy
            for key in way:
                at = at[key]
            at[last] = at[last] * factor
    return copy


def _keys(path: str) -> list[str]:
    return path.split("/")


def _copied(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in tree.items()}


def predicted_s(rows: Sequence[Row], constants: Efficiency) -> Floats:
    """Step times in seconds under other constants; one price per question."""
    problems: dict[int, Problem] = {}
    known: dict[tuple[int, str], float] = {}
    times = []
    with patch("solver.cost.setting.efficiency", lambda: constants):
        for row in rows:
            key = (id(row.problem), row.question)
            if key not in known:
                problem = problems.setdefault(id(row.problem), replace(row.problem))
                found = replace(row, problem=problem).predicted(estimate).step_time_s
                known[key] = found if found is not None else math.nan
            times.append(known[key])
    return np.array(times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Timed runs with the weight of each: half its share in the mean over groups, half its share in the mean over sources."""

    rows: tuple[Row, ...]
    measured_s: Floats
    weights: Floats
    rivals: tuple[NDArray[np.int64], ...]                  # by job: layouts close to the fastest measured

    @staticmethod
    def of(rows: Sequence[Row]) -> "Runs":
        groups, sources = Counter(r.group for r in rows), Counter(r.source for r in rows)
        weights = [0.5 / (len(groups) * groups[r.group]) + 0.5 / (len(sources) * sources[r.source]) for r in rows]
        measured = np.array([r.step_time_s or math.nan for r in rows])
        return Runs(rows=tuple(rows), measured_s=measured, weights=np.array(weights), rivals=tuple(_rivals(rows, measured)))

    def penalties(self, errors: Floats, keep: NDArray[np.bool_]) -> Floats:
        """Square roots of what the fit adds up: every run's error, and how far the errors of rivals differ, each robust and weighted."""
        weight = np.sqrt(self.weights[keep] * len(self.rows))
        found = [weight * _robust(errors[keep] / ROBUST)]
        used = [r for r in self.rivals if keep[r].all()]
        share = math.sqrt(CHOICE * len(self.rows) / max(1, len(self.rivals)))
        found += [share / math.sqrt(len(r)) * _robust((errors[r] - errors[r].mean()) / APART) for r in used]
        return np.concatenate(found)


def _robust(errors: Floats) -> Floats:
    """Square root of the pseudo-Huber loss, signed."""
    found: Floats = np.sign(errors) * np.sqrt(2.0 * (np.sqrt(1.0 + errors * errors) - 1.0))
    return found


def _rivals(rows: Sequence[Row], measured_s: Floats) -> Iterator[NDArray[np.int64]]:
    jobs: dict[tuple[str, ...], list[int]] = {}
    for i, row in enumerate(rows):
        if row.job is not None:
            jobs.setdefault(row.job, []).append(i)
    for members in jobs.values():
        near = np.array([i for i in members if measured_s[i] <= (1.0 + RIVALS) * measured_s[members].min()])
        if len({rows[i].question for i in near}) > 1:
            yield near


def timed(rows: Sequence[Row]) -> list[Row]:
    """Runs that took a step."""
    return [r for r in rows if r.step_time_s and not r.out_of_memory]


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Logarithms of predicted over measured at a point, and their derivatives by the logarithms of the parameters' factors."""

    at: Floats
    errors: Floats
    slopes: Floats

    def step(self, runs: Runs, chosen: Sequence[Parameter], prior: Floats, keep: NDArray[np.bool_]) -> Floats:
        """The point that a robust fit with priors takes to be best, were predictions linear, on the runs kept."""
        sigma = np.array([p.sigma for p in chosen])

        def residuals(by: Floats) -> Floats:
            stays: Floats = (self.at + by - prior) / sigma
            return np.concatenate([runs.penalties(self.errors + self.slopes @ by, keep), stays])

        found = least_squares(residuals, np.zeros(len(chosen)), bounds=(-REACH, REACH), method="trf")
        point: Floats = self.at + found.x
        return point


def local(runs: Runs, tree: Mapping[str, Any], chosen: Sequence[Parameter], at: Floats) -> Local:
    """Differences around a point."""
    def errors(point: Floats) -> Floats:
        return np.log(predicted_s(runs.rows, efficiency_of(moved(tree, chosen, np.exp(point).tolist()))) / runs.measured_s)

    here = errors(at)
    slopes = [(errors(at + STEP * unit) - here) / STEP for unit in np.eye(len(chosen))]
    return Local(at=at, errors=here, slopes=np.array(slopes).T)


def prior_of(tree: Mapping[str, Any], chosen: Sequence[Parameter]) -> Floats:
    """Logarithms of the factors that lead from the tree's constants to the priors."""
    return np.array([math.log(p.prior / value_at(tree, p.paths[0])) for p in chosen])


def objective(runs: Runs, chosen: Sequence[Parameter], prior: Floats, at: Floats, errors: Floats) -> float:
    """What the fit makes small, in the units of `Local.step`."""
    everything = np.ones(len(runs.rows), dtype=bool)
    return float((runs.penalties(errors, everything) ** 2).sum() + (((at - prior) / np.array([p.sigma for p in chosen])) ** 2).sum())


def fitted(runs: Runs, tree: Mapping[str, Any], chosen: Sequence[Parameter], rounds: int, say: Callable[[str], None]) -> tuple[Local, Floats]:
    """Rounds of linearised fits; each is taken as far as it helps. Returns the last slopes, taken at the point returned or one round before it."""
    prior = prior_of(tree, chosen)
    everything = np.ones(len(runs.rows), dtype=bool)
    near = local(runs, tree, chosen, np.zeros(len(chosen)))
    best = objective(runs, chosen, prior, near.at, near.errors)
    say(f"begin: objective {best:.1f}, {means(runs, near.errors)}")
    for turn in range(rounds):
        if turn:
            near = local(runs, tree, chosen, near.at)
        wanted = near.step(runs, chosen, prior, everything)
        for share in (1.0, 0.5, 0.25):
            at = near.at + share * (wanted - near.at)
            errors = np.log(predicted_s(runs.rows, efficiency_of(moved(tree, chosen, np.exp(at).tolist()))) / runs.measured_s)
            value = objective(runs, chosen, prior, at, errors)
            if value < best:
                break
        else:
            break
        say(f"round {turn + 1}: objective {best:.1f} -> {value:.1f}, {means(runs, errors)}")
        gained, best = best - value, value
        near = Local(at=at, errors=errors, slopes=near.slopes)
        if gained < 0.005 * best:
            break
    return near, near.at


def left_out(runs: Runs, tree: Mapping[str, Any], chosen: Sequence[Parameter], near: Local) -> dict[str, list[tuple[str, float]]]:
    """By source: (group, relative error) of its runs, by constants fitted to the runs of all other sources."""
    prior, found = prior_of(tree, chosen), {}
    for source in sorted({r.source for r in runs.rows}):
        keep = np.array([r.source != source for r in runs.rows])
        at = near.step(runs, chosen, prior, keep)
        rows = [r for r in runs.rows if r.source == source]
        times = predicted_s(rows, efficiency_of(moved(tree, chosen, np.exp(at).tolist())))
        found[source] = [(r.group, float(t / (r.step_time_s or math.nan) - 1.0)) for r, t in zip(rows, times, strict=True)]
    return found


def means(runs: Runs, errors: Floats) -> str:
    groups, sources = _by(runs, errors, "group"), _by(runs, errors, "source")
    return f"groups {macro(groups):.2%}, sources {macro(sources):.2%}"


def _by(runs: Runs, errors: Floats, key: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row, error in zip(runs.rows, np.exp(errors) - 1.0, strict=True):
        found.setdefault(getattr(row, key), []).append(float(error))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy.fitting", description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--rounds", type=int, default=4, help="linearised fits, at most; 0 only leaves sources out, around the constants as they are")
    parser.add_argument("--left-out", type=Path, help="write the errors of sources left out of the fit to this file")
    given = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    chosen, tree, runs = parameters(), shipped(), Runs.of(timed(load(given.runs)))
    if given.rounds:
        near, at = fitted(runs, tree, chosen, given.rounds, say)
    else:
        near = local(runs, tree, chosen, np.zeros(len(chosen)))
        at = near.at
    for parameter, factor in zip(chosen, np.exp(at), strict=True):
        for path in parameter.paths:
            value = value_at(tree, path)
            print(f"{path:45s} {value:10.4g} -> {value * factor:10.4g}   prior {parameter.prior:g} (+-{parameter.sigma:.0%})")
    for source, errors in sorted(_by(runs, near.errors, "source").items()):
        print(f"  {source:8s} {np.abs(errors).mean():6.1%} {np.mean(errors):+6.1%} ({len(errors)})")
    if given.left_out:
        found = left_out(runs, tree, chosen, near)
        given.left_out.write_text(left_out_toml(found, given.runs.stem))
        print(f"left out: {left_out_means(found)}")
    return 0


def left_out_means(found: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    groups: dict[str, list[float]] = {}
    for errors in found.values():
        for group, error in errors:
            groups.setdefault(group, []).append(error)
    return f"groups {macro(groups):.2%}, sources {macro({s: [e for _, e in v] for s, v in found.items()}):.2%}"


def left_out_toml(found: Mapping[str, Sequence[tuple[str, float]]], runs: str) -> str:
    """Mean absolute error over groups and over sources, and of each source, by fits that have not seen it."""
    groups: dict[str, list[float]] = {}
    for errors in found.values():
        for group, error in errors:
            groups.setdefault(group, []).append(error)
    sources = {source: [e for _, e in errors] for source, errors in found.items()}
    lines = ["# Written by `python -m tests.accuracy.fitting RUNS.csv --left-out FILE`: each source by constants fitted to all others.",
             f'runs = "{runs}"', f'cost_model = "{COST_MODEL_VERSION}"',
             f"over_groups = {macro(groups):.6f}", f"over_sources = {macro(sources):.6f}", "", "[source]"]
    return "\n".join(lines + [f"{s} = {float(np.abs(e).mean()):.6f}" for s, e in sorted(sources.items())]) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
