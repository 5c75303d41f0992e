"""`python -m tests.accuracy [RUNS] [--record] [--calibrate K]`: score, compare with the record, and exit 1 where a figure got worse."""
import argparse
import sys
from pathlib import Path

from solver.cost.version import COST_MODEL_VERSION
from tests.accuracy import record, report
from tests.accuracy.calibrating import Calibrated, calibrated, fitted
from tests.accuracy.requests import DATA
from tests.accuracy.rows import TRAIN, Table, read
from tests.accuracy.scoring import Figures, score

OBSERVED = 5
SHOWN = 10


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__)
    parser.add_argument("runs", type=Path, nargs="?", default=TRAIN, help="measured runs, .csv or .jsonl (default: the committed ones)")
    parser.add_argument("--record", action="store_true", help="write the figures and docs/accuracy.md anew instead of comparing")
    parser.add_argument("--calibrate", type=int, default=OBSERVED, metavar="K", help=f"runs observed of each cluster (default {OBSERVED}; 0: none)")
    parser.add_argument("--figures", type=Path, default=record.FIGURES, help="the record (default: figures.toml of this package)")
    parser.add_argument("--report", type=Path, default=report.REPORT, help="the page that --record writes (default: docs/accuracy.md)")
    given = parser.parse_args(arguments)
    try:
        table = read(given.runs)
    except (OSError, ValueError) as e:
        parser.error(str(e))
    figures = score(table.rows)
    tree = record.tree_of(given.runs, COST_MODEL_VERSION, table, figures, _calibrated(figures, given.calibrate))
    for line in report.terminal(given.runs.name, tree, report.left_out_of(given.runs.stem, report.left_out())):
        print(line)
    failed = _list_refused(table, figures)
    done = _record(given.runs.stem, tree, given.figures, given.report) if given.record else _compare(given.runs.stem, tree, given.figures)
    return done or failed


def _calibrated(figures: Figures, observed: int) -> Calibrated | None:
    return calibrated(figures.scored, observed, fitted) if observed else None


def _list_refused(table: Table, figures: Figures) -> int:
    refused = [*table.refused, *((name, "no predicted step time") for name in figures.unpriced)]
    for name, why in refused[:SHOWN]:
        print(f"refused {name}: {why[:200]}", file=sys.stderr)
    return 1 if refused else 0


def _record(name: str, tree: record.Tree, figures: Path, page: Path) -> int:
    record.write(record.recorded(figures) | {name: tree}, figures)
    trees = record.recorded(figures)
    page.write_text(report.render(trees, report.left_out()))
    print(f"wrote {figures} and {page}", file=sys.stderr)
    missing = report.unexplained(trees)
    if missing:
        print(f"no cause is given in {DATA / 'report.toml'} for: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


def _compare(name: str, tree: record.Tree, figures: Path) -> int:
    before = record.recorded(figures).get(name)
    if before is None:
        print(f"no figures of {name} are recorded: nothing to compare with", file=sys.stderr)
        return 0
    if before["digest"] != tree["digest"]:
        print(f"{name} is not the file whose figures are recorded: nothing to compare with", file=sys.stderr)
        return 0
    changes = record.worse(before, tree)
    if changes:
        print(f"worse than recorded in {figures.name} (if on purpose: make accuracy RECORD=1):", *map(report.change, changes),
              sep="\n", file=sys.stderr)
    else:
        print("no figure is worse than recorded", file=sys.stderr)
    return 1 if changes else 0


if __name__ == "__main__":
    raise SystemExit(main())
