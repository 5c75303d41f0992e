"""Measured runs that can be priced: read from CSV (the layout of `data/train.csv`) or from JSON lines (bodies of estimates)."""
import csv
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from solver.cost.estimate import estimate
from solver.domain.degrees import RECOMPUTE_MODES, Strategy
from solver.domain.estimate import Estimate
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.domain.request import EstimateRequest
from solver.errors import InputError
from solver.importers.request import problem_of
from tests.accuracy.requests import DATA, Body, Cells, NotStated, number, request_of, source_facts, source_of, whole

Predict = Callable[[Problem, Strategy | Plan], Estimate]
Counter = Literal["allocated", "other"]

TRAIN = DATA / "train.csv"
GIB = 2**30
PRICED_TASKS = ("", "pretrain", "functional-test")
JOB = ("group_id", "model_name", "n_heads", "n_gpus", "global_batch", "seq_len", "precision", "recompute")
_REQUEST = TypeAdapter(EstimateRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured run. Rows that share a problem hold the same object, so that what is kept per problem is found again.

    layouts: the layout, or the same at every recompute mode, lightest first, where the source does not state the mode. question: equal for
    rows that ask the same of one job. job: equal for layouts measured on one job; None for none. cluster: name of those rows whose observations
    may calibrate this one. memory_of_last_stage: the counter was read on the last stage, not on the fullest.
    """

    name: str
    source: str
    group: str
    device: str
    cluster: str
    job: tuple[str, ...] | None
    question: str
    problem: Problem
    layouts: tuple[Strategy | Plan, ...]
    step_time_s: float | None
    memory_gib: float | None
    counter: Counter
    memory_of_last_stage: bool
    out_of_memory: bool

    def predicted(self, predict: Predict = estimate) -> Estimate:
        """The prediction, at the lightest recompute mode that is not over the capacity, or else at the heaviest."""
        for layout in self.layouts:
            found = predict(self.problem, layout)
            if found.risk != "over":
                break
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One file: its runs in order, and (id, reason) of those that state too little and of those that the library refuses."""

    rows: tuple[Row, ...]
    unasked: tuple[tuple[str, str], ...]
    refused: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Problems:
    """Requests as problems, each resolved once."""

    known: dict[str, Problem]

    def asked(self, body: Body) -> tuple[Problem, tuple[Strategy | Plan, ...]]:
        layouts: list[Strategy | Plan] = []
        strategy = body.get("strategy")
        unknown = strategy is not None and strategy.get("recompute") == "unknown"
        for fields in ([strategy | {"recompute": mode} for mode in RECOMPUTE_MODES] if strategy is not None and unknown else [strategy]):
            request = _REQUEST.validate_json(json.dumps(body if fields is None else body | {"strategy": fields}))
            layout = request.strategy or request.plan
            assert layout is not None                       # the request type refuses a body with neither
            layouts.append(layout)
        key = json.dumps([body.get(name) for name in ("model", "cluster", "workload", "memory_margin")], sort_keys=True)
        if key not in self.known:
            self.known[key] = problem_of(request.model, request.cluster, request.workload, request.memory_margin)
        return self.known[key], tuple(layouts)


def columns() -> list[str]:
    """The header of the committed runs."""
    with TRAIN.open(newline="") as handle:
        return next(csv.reader(handle))


def load(path: Path) -> list[Row]:
    """The runs of a file that can be asked."""
    return list(read(path).rows)


def read(path: Path) -> Table:
    """Every run of a file: JSON lines where its name ends in .jsonl, else CSV. Raises ValueError where columns are missing."""
    problems = Problems({})
    if path.suffix == ".jsonl":
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        return _table((f"line {i}", partial(_row_of_json, line, path.stem, problems)) for i, line in enumerate(lines, 1))
    with path.open(newline="") as handle:
        reader = csv.DictReader(handle)
        missing = [name for name in columns() if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path} has no columns {', '.join(missing)}")
        entries = [cells for cells in reader if (cells["task"] or "") in PRICED_TASKS]
    return _table((cells["id"], partial(_row_of_cells, cells, problems)) for cells in entries)


def _table(entries: Iterable[tuple[str, Callable[[], Row]]]) -> Table:
    rows, unasked, refused = [], [], []
    for name, build in entries:
        try:
            rows.append(build())
        except NotStated as e:
            unasked.append((name, str(e)))
        except (InputError, ValidationError, ValueError, KeyError) as e:
            refused.append((name, f"{type(e).__name__}: {e}"))
    return Table(rows=tuple(rows), unasked=tuple(unasked), refused=tuple(refused))


def _row_of_cells(cells: Cells, problems: Problems) -> Row:
    body = request_of(cells)
    problem, layouts = problems.asked(body)
    source = source_of(cells)
    memory_gib, counter = measured_memory(cells)
    return Row(name=cells["id"], source=source, group=cells.get("group_id") or cells["source"], device=cells["gpu"],
               cluster=re.sub(r"[^A-Za-z0-9._-]+", "-", f"{cells['source'].split(':')[0]}-{cells['gpu']}")[:200],
               job=tuple(cells[name] for name in JOB), question=json.dumps([body["strategy"], body["workload"]], sort_keys=True),
               problem=problem, layouts=layouts, step_time_s=measured_step_time_s(cells), memory_gib=memory_gib, counter=counter,
               memory_of_last_stage=source_facts(source).get("memory_of_last_stage", False), out_of_memory=cells["oom"] == "1")


def _row_of_json(line: str, stem: str, problems: Problems) -> Row:
    """A body of an estimate with `measured` (`step_time_s`, `peak_memory_gib`, `out_of_memory`) and, optionally, `id`, `source`, `group`."""
    body: Body = json.loads(line)
    measured: dict[str, Any] = body["measured"]
    request = {name: value for name, value in body.items() if name not in ("measured", "id", "source", "group")}
    problem, layouts = problems.asked(request)
    device = "+".join(dict.fromkeys(g.device.name for g in problem.cluster.node_groups))
    source, group = str(body.get("source", stem)), body.get("group")
    name = str(body.get("id", group or source))
    return Row(name=name, source=source, group=str(group or name), device=device, cluster=f"{source}-{device}",
               job=None if group is None else (source, str(group)), question=json.dumps(request, sort_keys=True),
               problem=problem, layouts=layouts, step_time_s=measured.get("step_time_s"), memory_gib=measured.get("peak_memory_gib"),
               counter="allocated", memory_of_last_stage=False, out_of_memory=bool(measured.get("out_of_memory", False)))


def measured_step_time_s(cells: Cells) -> float | None:
    """As printed, or from the printed throughput. Functional tests are of tiny models: memory only."""
    if cells.get("task") == "functional-test":
        return None
    step_s, rate, batch = number(cells, "step_time_s"), number(cells, "tokens_per_s_per_gpu"), whole(cells, "global_batch")
    if not step_s and rate and batch:
        return batch * (whole(cells, "seq_len") or 0) / (rate * (whole(cells, "n_gpus") or 1))
    return step_s


def measured_memory(cells: Cells) -> tuple[float | None, Counter]:
    """GiB, and whether the counter was of allocated bytes: others count cached blocks or the whole device."""
    value, kind = number(cells, "mem_gb_per_gpu"), cells.get("mem_kind") or ""
    if not value:
        return None, "other"
    gib = value * 1e9 / GIB if "1e9" in kind or kind.startswith("GB") else value
    return gib, "allocated" if "allocated" in kind and "not stated" not in kind else "other"
