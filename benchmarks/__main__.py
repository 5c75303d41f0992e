"""Times pricing and search on the examples: `python -m benchmarks [--record FILE] [--time-limit SECONDS]`."""
import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.examples import Example, examples
from solver.search.result import SearchResult

PRICING_S = 2.0                                             # how long each pricing benchmark runs
_HEAD = """# Speed

Measured by `make bench RECORD=1`; the numbers are of the machine named here and change with it.

{machine}
"""
_PRICING = """
## Pricing

One call of `estimate` for the uniform strategy named, problem already resolved.

| example | layout | median | 95th percentile |
|---|---|--:|--:|
"""
_SEARCH = """
## Search

One call of `search` from a cold start, reading the request not included.

| example | GPUs | outcome | gap | time | candidates | solved |
|---|--:|---|--:|--:|--:|--:|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of repeated calls."""

    median_s: float
    p95_s: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--record", type=Path, help="write the tables to this file")
    parser.add_argument("--time-limit", type=float, default=30.0, help="longest search, in seconds")
    given = parser.parse_args()
    text = _HEAD.format(machine=machine())
    for title, rows in ((_PRICING, pricing_rows()), (_SEARCH, search_rows(given.time_limit))):
        text += title
        print(title.strip(), flush=True)
        for row in rows:
            line = "| " + " | ".join(row) + " |"
            text += line + "\n"
            print(line, flush=True)
    if given.record:
        given.record.write_text(text)
        print(f"wrote {given.record}", file=sys.stderr)
    return 0


def machine() -> str:
    """The machine in words: processor cores, system, versions, date."""
    import ortools

    return (f"{os.cpu_count()} cores of {platform.machine()}, {platform.system()}, Python {platform.python_version()}, "
            f"OR-Tools {ortools.__version__}, {datetime.now(UTC):%Y-%m-%d}")


def pricing_rows() -> Iterator[tuple[str, ...]]:
    """Example, layout, and how long pricing takes."""
    from solver.cost.estimate import estimate

    for example in examples():
        strategy = example.strategy()
        took = timed(lambda e=example, s=strategy: estimate(e.problem, s), PRICING_S)    # type: ignore[misc]
        yield example.name, f"tp {strategy.tp}, pp {strategy.pp}, dp {strategy.dp}", f"{took.median_s * 1e3:.2f} ms", f"{took.p95_s * 1e3:.2f} ms"


def search_rows(time_limit_s: float) -> Iterator[tuple[str, ...]]:
    """Example, size, and how the search went."""
    for example in examples():
        result, wall_s = searched(example, time_limit_s)
        gap = "none" if result.gap is None else f"{result.gap * 100:.2f} %"
        yield (example.name, str(example.problem.cluster.gpus), result.outcome, gap, f"{wall_s:.2f} s", str(result.search.candidates),
               str(result.search.solved))


def searched(example: Example, time_limit_s: float) -> tuple[SearchResult, float]:
    """The result and how long it took, in seconds."""
    from solver.search.driver import search

    begun_s = time.perf_counter()
    options = replace(example.request.search, time_limit_s=time_limit_s)
    result = search(example.problem, example.request.objective, example.request.constraints, options, lambda progress: None, lambda: False)
    return result, time.perf_counter() - begun_s


def timed(call: Callable[[], object], for_s: float) -> Timing:
    """Median and 95th percentile of calls over about `for_s` seconds, the first one left out."""
    call()
    took: list[float] = []
    end_s = time.perf_counter() + for_s
    while not took or time.perf_counter() < end_s:
        begun_s = time.perf_counter()
        call()
        took.append(time.perf_counter() - begun_s)
    took.sort()
    return Timing(median_s=statistics.median(took), p95_s=took[min(len(took) - 1, int(len(took) * 0.95))])


if __name__ == "__main__":
    raise SystemExit(main())
