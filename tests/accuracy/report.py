"""`docs/accuracy.md` from recorded figures, and the same at a terminal."""
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

from tests.accuracy.record import Change, Tree
from tests.accuracy.requests import DATA, source_facts

HERE = Path(__file__).parent
REPORT = HERE.parents[1] / "docs" / "accuracy.md"
LEFT_OUT = HERE / "left_out.toml"
FAR_ROWS = 10                                              # so many rows off by more than 20 % ask for a cause

ERRORS = "runs | mean | median | 90th percentile | bias | over 20 %"
COUNTERS = {"allocated": "counters of allocated bytes", "other": "other counters (reserved, whole device)"}


def words() -> Tree:
    return tomllib.loads((DATA / "report.toml").read_text())


def left_out() -> Tree:
    """Mean errors of sources left out of the fit, as the fit wrote them: `over_groups`, `over_sources`, `source.<name>`, and `runs`: whose."""
    return tomllib.loads(LEFT_OUT.read_text()) if LEFT_OUT.exists() else {}


def left_out_of(name: str, unfitted: Tree) -> Tree:
    """The same where it is of this file of runs."""
    return unfitted if unfitted.get("runs") == name else {}


def render(trees: Mapping[str, Tree], unfitted: Tree) -> str:
    """The page. `trees` and `unfitted` are the contents of figures.toml and left_out.toml."""
    titles, causes = words()["titles"], words()["causes"]
    names = sorted(trees, key=lambda name: -trees[name]["rows"])
    observed = {tree["calibrated"]["observed"] for tree in trees.values() if "calibrated" in tree}
    apart = {name: left_out_of(name, unfitted) for name in names}
    above: list[str] = []
    sections = ""
    for name in names:
        sections += f"## {titles.get(name, name)}\n\n" + "\n".join(section(trees[name], apart[name], above)) + "\n"
    columns = {titles.get(name, name): dict(summary(trees[name], apart[name])) for name in names}
    return Template((HERE / "report.md").read_text()).substitute(
        headline="\n".join(headline(columns)), sections=sections, observed=" or ".join(map(str, sorted(observed))) or "some",
        causes="\n".join(f"- **{title_of(s)}**: {causes.get(s, 'no cause is known')}" for s in needing_cause(trees)) or "There is none.")


def needing_cause(trees: Mapping[str, Tree]) -> list[str]:
    """Sources with many rows far off, or off on average."""
    return sorted({name for tree in trees.values() for name, found in tree.get("source", {}).items()
                   if found["far"] >= FAR_ROWS or (found["rows"] >= FAR_ROWS and found["mean"] > 0.2)})


def unexplained(trees: Mapping[str, Tree]) -> list[str]:
    return [source for source in needing_cause(trees) if source not in words()["causes"]]


def title_of(source: str) -> str:
    return str(source_facts(source).get("title", source))


def headline(columns: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """One column per file of runs."""
    yield f"| figure | {' | '.join(columns)} |"
    yield f"|---|{'--:|' * len(columns)}"
    for figure in dict.fromkeys(figure for column in columns.values() for figure in column):
        yield f"| {figure} | {' | '.join(column.get(figure, '') for column in columns.values())} |"


def summary(tree: Tree, apart: Tree) -> Iterator[tuple[str, str]]:
    """Name and value of the figures of one file."""
    yield "runs priced (too little stated; refused)", f"{tree['rows']:,} ({tree['unasked']}; {tree['refused'] + tree['unpriced']})"
    yield from _times(tree, "step time")
    if apart:
        yield "left out of the fit, macro mean over groups", percent(apart["over_groups"])
        yield "left out of the fit, macro mean over sources", percent(apart["over_sources"])
    yield from _regret(tree, "regret")
    if fit := tree.get("fit"):
        ran, oom = (sum(fit[f"{outcome}_{risk}"] for risk in ("safe", "risky", "over")) for outcome in ("ran", "oom"))
        if "balanced_accuracy" in fit:
            yield "fits or not, balanced accuracy", percent(fit["balanced_accuracy"])
        if oom:
            yield "ran out of memory: called safe, risky, over", f"{fit['oom_safe']}, {fit['oom_risky']}, {fit['oom_over']}"
        if ran:
            yield "ran: called safe, risky, over", f"{fit['ran_safe']:,}, {fit['ran_risky']}, {fit['ran_over']}"
    for counter, found in tree.get("memory", {}).items():
        yield f"memory, {COUNTERS.get(counter, counter)}", _spread(found)
    if calibrated := tree.get("calibrated"):
        for state in ("before", "after"):
            yield from _times(calibrated[state], f"{state} calibration, step time", short=True)
        for state in ("before", "after"):
            yield from _regret(calibrated[state], f"{state} calibration, regret")


def _times(tree: Tree, what: str, short: bool = False) -> Iterator[tuple[str, str]]:
    if found := tree.get("step_time"):
        if not short:
            yield f"{what}, mean over all runs", _spread(found)
        yield f"{what}, macro mean over groups", f"{percent(found['over_groups'])} of {found['groups']}"
        yield f"{what}, macro mean over sources", f"{percent(found['over_sources'])} of {found['sources']}"


def _regret(tree: Tree, what: str) -> Iterator[tuple[str, str]]:
    if found := tree.get("regret"):
        shown = f"{found['within']} of {found['jobs']} ({percent(found['within_share'])}), {found['exact']} exact"
        yield f"{what}: picks within 2 % of the best", shown
        yield f"{what}: mean; worst", f"{percent(found['mean'])}; {percent(found['worst'])}"


def section(tree: Tree, apart: Tree, above: list[str]) -> Iterator[str]:
    """Tables by source and by device, without the lines that stand `above` already; adds its own to these."""
    if apart and apart.get("cost_model", tree["cost_model"]) != tree["cost_model"]:
        yield f"Left-out figures are of cost model {apart['cost_model']}, the others of {tree['cost_model']}.\n"
    if above:
        yield "Sources and devices that are not listed are as above.\n"
    yield from _new(by_source(tree, apart), above, f"| source | {ERRORS} | left out | calibrated: before, after |")
    yield from _new(by_device(tree), above, f"| device | {ERRORS} |")


def _new(lines: Iterable[str], above: list[str], header: str) -> Iterator[str]:
    found = [line for line in lines if line not in above]
    above += found
    if found:
        yield from (header, f"|---|{'--:|' * (header.count('|') - 2)}", *found, "")


def by_source(tree: Tree, apart: Tree) -> Iterator[str]:
    calibrated = tree.get("calibrated", {"before": {"source": {}}, "after": {"source": {}}})
    for name, found in sorted(tree.get("source", {}).items(), key=lambda item: -item[1]["mean"]):
        unfitted = apart.get("source", {}).get(name)           # not there for sources that the fit does not use
        before, after = (calibrated[state]["source"].get(name) for state in ("before", "after"))
        yield (f"| {title_of(name)} | {_cells(found)} | {'' if unfitted is None else percent(unfitted)} | "
               f"{percent(before['mean']) + ', ' + percent(after['mean']) if before and after else ''} |")


def by_device(tree: Tree) -> Iterator[str]:
    for name, found in tree.get("device", {}).items():
        yield f"| {name} | {_cells(found)} |"


def _cells(found: Mapping[str, Any]) -> str:
    shares = (percent(found["mean"]), percent(found["median"]), percent(found["p90"]), percent(found["bias"], sign=True))
    return f"{found['rows']} | {' | '.join(shares)} | {found['far']}"


def _spread(found: Mapping[str, Any]) -> str:
    return (f"{percent(found['mean'])} of {found['rows']:,} (median {percent(found['median'])}, 90th percentile {percent(found['p90'])}, "
            f"bias {percent(found['bias'], sign=True)})")


def percent(share: float, sign: bool = False) -> str:
    return f"{share * 100:{'+' if sign else ''}.1f} %"


def terminal(title: str, tree: Tree, apart: Tree) -> Iterator[str]:
    """The same figures as plain lines."""
    yield f"{title}, cost model {tree['cost_model']}"
    for figure, value in summary(tree, apart):
        yield f"  {figure:60s} {value}"
    for what in ("source", "device"):
        for name, found in tree.get(what, {}).items():
            errors = f"mean {percent(found['mean']):>7s}, bias {percent(found['bias'], sign=True):>8s}"
            yield f"  {what + ' ' + name:34s} {found['rows']:5d} runs, {errors}"


def change(found: Change) -> str:
    now = "is no longer measured" if found.now is None else f"is {found.now:.6g}"
    return f"  {found.name}: recorded {found.recorded:.6g}, {now}"
