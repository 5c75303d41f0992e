"""Times pricing and search on the examples: `python -m benchmarks [--record FILE] [--time-limit SECONDS]`."""
import argparse
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.examples import Example, examples
from benchmarks.pricing import estimate_rows, table_rows
from solver.search.result import SearchResult

_HEAD = """# Speed

Measured by `make bench RECORD=1`; the numbers are of the machine named here and change with it.

{machine}
"""
_PRICING = """
## Pricing

Processor time of one call of `estimate` for the uniform layout named, on nodes of eight H100s, the problem already resolved: the first layout of a
problem, then others that differ in how stages run (median of those, each priced for the first time), then the same layout again (median).

| layout | | first | others | again |
|---|---|--:|--:|--:|
"""
_TABLE = """
Processor time of `price_table` on different legal layouts of one problem, Llama 3.1 70B on 512 H100s: all tensor, pipeline, context and data parallel
degrees, virtual stages, micro-batches, recompute modes and ZeRO stages. Each row is the same number as `estimate` gives alone.

| layouts | | time | each |
|--:|---|--:|--:|
"""
_SEARCH = """
## Search

One call of `search` from a cold start, reading the request not included.

| example | GPUs | outcome | gap | time | candidates | solved |
|---|--:|---|--:|--:|--:|--:|
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--record", type=Path, help="write the tables to this file")
    parser.add_argument("--time-limit", type=float, default=30.0, help="longest search, in seconds")
    given = parser.parse_args()
    text = _HEAD.format(machine=machine())
    for title, rows in ((_PRICING, estimate_rows()), (_TABLE, table_rows()), (_SEARCH, search_rows(given.time_limit))):
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


if __name__ == "__main__":
    raise SystemExit(main())
