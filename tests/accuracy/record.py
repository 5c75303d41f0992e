"""Figures as committed: `figures.toml`, one table per file of measured runs; and whether present figures got worse.

Figures are kept as plain numbers under dotted names, the same in the file, in the report and in the comparison.
"""
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.accuracy.calibrating import Calibrated
from tests.accuracy.rows import Table
from tests.accuracy.scoring import Figures, Fit, Spread

Tree = dict[str, Any]

FIGURES = Path(__file__).with_name("figures.toml")
TOLERANCE = 1e-6                                           # relative: below it, two runs of one program may differ by the order of sums
DIGITS = 10
BARE = re.compile(r"[A-Za-z0-9_-]+")                       # keys that TOML takes without quotes
HEAD = "# Written by `make accuracy RECORD=1`: figures of the present cost model, one table per file of measured runs. Errors are shares.\n"

# What may not get worse, by the last part of its name: True where more is better. Everything else is recorded for the report alone.
JUDGED = {"mean": False, "over_groups": False, "over_sources": False, "balanced_accuracy": True, "oom_called_safe": False,
          "ran_called_risky_or_over": False, "within_share": True, "rows": True, "refused": False, "unpriced": False, "made_worse": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A figure beside its record; `now` is None where it is no longer measured."""

    name: str
    recorded: float
    now: float | None


def tree_of(path: Path, cost_model: str, table: Table, figures: Figures, calibrated: Calibrated | None) -> Tree:
    """Everything that is recorded of one file."""
    tree: Tree = {"file": path.name, "digest": digest(path), "cost_model": cost_model, "unasked": len(table.unasked),
                  "refused": len(table.refused), "unpriced": len(figures.unpriced), **figures_tree(figures)}
    if calibrated is not None:
        tree["calibrated"] = {"observed": calibrated.observed, "clusters": calibrated.clusters, "made_worse": len(calibrated.worse()),
                              "before": figures_tree(calibrated.before), "after": figures_tree(calibrated.after)}
    return tree


def figures_tree(figures: Figures) -> Tree:
    tree: Tree = {"rows": figures.rows}
    if figures.step_time is not None:
        tree["step_time"] = asdict(figures.step_time) | {"groups": figures.groups, "over_groups": figures.over_groups,
                                                         "sources": len(figures.by_source), "over_sources": figures.over_sources}
    if figures.fit.ran + figures.fit.oom:
        tree["fit"] = asdict(figures.fit) | _fit_shares(figures.fit)
    if figures.regret is not None:
        tree["regret"] = asdict(figures.regret) | {"within_share": figures.regret.within / figures.regret.jobs}
    for name, spreads in (("memory", figures.memory), ("source", figures.by_source), ("device", figures.by_device)):
        tree[name] = {key: asdict(found) for key, found in spreads.items()}
    return tree


def _fit_shares(fit: Fit) -> Tree:
    shares: Tree = {}
    if fit.ran:
        shares["ran_called_risky_or_over"] = (fit.ran_risky + fit.ran_over) / fit.ran
    if fit.oom:
        shares["oom_called_safe"] = fit.oom_safe / fit.oom
    if fit.balanced_accuracy is not None:
        shares["balanced_accuracy"] = fit.balanced_accuracy
    return shares


def spread_in(tree: Mapping[str, Any]) -> Spread:
    return Spread(**{name: tree[name] for name in Spread.__dataclass_fields__})


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def recorded(path: Path) -> Tree:
    """By name of the file of measured runs, without its ending."""
    return tomllib.loads(path.read_text()) if path.exists() else {}


def write(trees: Mapping[str, Tree], path: Path) -> None:
    path.write_text(HEAD + "".join("\n".join(_toml(tree, (name,))) + "\n" for name, tree in sorted(trees.items())))


def _toml(tree: Tree, at: tuple[str, ...]) -> Iterator[str]:
    yield f"\n[{'.'.join(part if BARE.fullmatch(part) else json.dumps(part) for part in at)}]"
    for name, value in tree.items():
        if not isinstance(value, dict):
            yield f"{name} = {_literal(value)}"
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _toml(value, (*at, name))


def _literal(value: str | int | float) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    return f"{float(value):#.{DIGITS}g}" if isinstance(value, float) else str(value)


def flat(tree: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, float]]:
    """Numbers under dotted names."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{at}{name}.")
        elif isinstance(value, int | float):
            yield f"{at}{name}", float(value)


def worse(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Judged figures that got worse, or that are gone."""
    present = dict(flat(now))
    found = []
    for name, value in flat(before):
        more_is_better = JUDGED.get(name.rsplit(".", 1)[-1])
        if more_is_better is None or name.startswith("calibrated.before."):
            continue
        new = present.get(name)
        if new is None or (value - new if more_is_better else new - value) > TOLERANCE * max(abs(value), TOLERANCE):
            found.append(Change(name=name, recorded=value, now=new))
    return found
