"""Predictions beside measured runs: `python -m benchmarks.accuracy RUNS.jsonl [--record FILE]`.

Each line is the body of an estimate with `"measured": {"step_time_s": 26.5, "peak_memory_gib": 61.0}` (either may be missing) and,
optionally, `"id"`.
"""
import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from solver.cost.estimate import estimate
from solver.cost.version import COST_MODEL_VERSION
from solver.domain.request import EstimateRequest
from solver.errors import InputError
from solver.importers.request import problem_of

WORST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measured run: predicted over measured, less one; None where it was not measured or not predicted."""

    name: str
    step_time_error: float | None
    memory_error: float | None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy")
    parser.add_argument("runs", type=Path, help="measured runs, one JSON object a line")
    parser.add_argument("--record", type=Path, help="write the summary to this file")
    given = parser.parse_args()
    rows, refused = [], []
    for number, line in enumerate(given.runs.read_text().splitlines(), 1):
        if line.strip():
            try:
                rows.append(compare(line, f"line {number}"))
            except (InputError, ValidationError, ValueError) as e:
                refused.append(f"line {number}: {str(e)[:200]}")
    text = "\n".join(report(rows, refused)) + "\n"
    print(text, end="")
    if given.record:
        given.record.write_text(f"# Accuracy\n\nMeasured by `make accuracy RECORD=1`, cost model {COST_MODEL_VERSION}.\n\n{text}")
        print(f"wrote {given.record}", file=sys.stderr)
    return 1 if refused else 0


def compare(line: str, name: str) -> Compared:
    """Predict the run of one line."""
    body = json.loads(line)
    measured = body.pop("measured")
    name = str(body.pop("id", name))
    request = TypeAdapter(EstimateRequest).validate_json(json.dumps(body))
    what = request.strategy or request.plan
    if what is None:
        raise ValueError("neither strategy nor plan")
    found = estimate(problem_of(request.model, request.cluster, request.workload, request.memory_margin), what)
    return Compared(name=name, step_time_error=_error(found.step_time_s, measured.get("step_time_s")),
                    memory_error=_error(found.memory.peak_gib if found.memory else None, measured.get("peak_memory_gib")))


def report(rows: list[Compared], refused: list[str]) -> Iterator[str]:
    """A table, the worst rows, and what was refused."""
    yield "| figure | runs | mean | median | 90th percentile | bias |"
    yield "|---|--:|--:|--:|--:|--:|"
    for figure, errors in (("step time", [(r.step_time_error, r.name) for r in rows]), ("peak memory", [(r.memory_error, r.name) for r in rows])):
        known = sorted((abs(e), e, name) for e, name in errors if e is not None)
        if not known:
            yield f"| {figure} | 0 | | | | |"
            continue
        sizes = [size for size, _, _ in known]
        p90 = sizes[max(math.ceil(len(sizes) * 0.9) - 1, 0)]
        bias = statistics.mean(e for _, e, _ in known)
        shown = " | ".join(_percent(share) for share in (statistics.mean(sizes), statistics.median(sizes), p90, bias))
        yield f"| {figure} | {len(known)} | {shown} |"
    worst = sorted(((abs(r.step_time_error), r) for r in rows if r.step_time_error is not None), key=lambda pair: -pair[0])[:WORST]
    if worst:
        yield "\nFurthest off in step time: " + ", ".join(f"{r.name} ({_percent(r.step_time_error or 0.0)})" for _, r in worst)
    yield f"\nRefused: {len(refused)}"
    yield from refused[:WORST]


def _error(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1 if predicted is not None and measured else None


def _percent(share: float) -> str:
    return f"{share * 100:+.1f} %" if share < 0 else f"{share * 100:.1f} %"


if __name__ == "__main__":
    raise SystemExit(main())
