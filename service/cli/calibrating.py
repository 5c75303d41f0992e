"""Calibration at the terminal: a file of measured runs in, one fit out, as the service makes it."""
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from service.cli.reading import raw_of
from service.cli.tables import plain_table
from service.cli.words import percent, printable, seconds
from solver.domain.request import ObservationRequest
from solver.errors import Fault, InputError

MAX_RUNS = 1000


def read_runs(path: Path, name: str) -> list[ObservationRequest]:
    """The runs of a file, a JSON array or one object a line, as bodies of POST /v1/observations; all in the set `name`."""
    from service.api.body import checked
    from service.api.strict_json import parse

    raw = raw_of(path)
    values = parse(raw) if raw.lstrip()[:1] == b"[" else [parse(line) for line in raw.splitlines() if line.strip()]
    if not 1 <= len(values) <= MAX_RUNS:
        raise InputError(Fault(pointer="", message=f"{path} holds {len(values)} runs", legal=f"1 to {MAX_RUNS}"))
    requests, faults = [], []
    for i, value in enumerate(values):
        try:
            if not isinstance(value, dict):
                raise InputError(Fault(pointer="", message="is not an object", legal="a JSON object"))
            requests.append(checked(orjson.dumps(value | {"calibration_set": name}), ObservationRequest))
        except InputError as e:
            faults += [Fault(pointer=f"/{i}{f.pointer}", message=f.message, legal=f.legal) for f in e.faults]
    if faults:
        raise InputError(*faults)
    return requests


def fit_of(requests: list[ObservationRequest], name: str) -> tuple[Any, list[dict[str, Any]]]:
    """The fit of the runs, and a line for each: measured, predicted before and after. Raises `InputError` with every run that cannot be."""
    from service.jobs.planner import LibraryPlanner
    from solver.cost.observation import predicted

    planner, runs, faults = LibraryPlanner(), [], []
    for i, request in enumerate(requests):
        try:
            run = planner.run(request)
            planner.refuse_absurd(run, ())
            runs.append(run)
        except InputError as e:
            faults += [Fault(pointer=f"/{i}{f.pointer}", message=f.message, legal=f.legal) for f in e.faults]
    if faults:
        raise InputError(*faults)
    fitted = planner.fitted(runs, name)
    lines = [{"measured": request.measured, "before": predicted(run, None), "after": predicted(run, fitted.calibration)}
             for request, run in zip(requests, runs, strict=True)]
    return fitted, lines


def show_fit(out: Console, fitted: Any, lines: list[dict[str, Any]]) -> None:
    """What was learned, how good it is, and each run beside its prediction."""
    table = plain_table("coefficient", "times", "of what")
    for learned in fitted.learned:
        why = f" ({learned.kept_at_default})" if learned.kept_at_default else ""
        table.add_row(learned.name, f"{learned.multiplier:.3g}", printable(learned.meaning + why))
    out.print(table)
    for what, accuracy in (("step time", fitted.step_time), ("peak memory", fitted.peak_memory)):
        if accuracy is not None:
            out.print(f"\nMean error of the {what} over {accuracy.runs} runs: {percent(accuracy.before)} before, {percent(accuracy.after)} after, "
                      f"{percent(accuracy.left_out)} for runs left out of the fit")
    table = plain_table("run", "measured", "before", "after", "")
    for i, line in enumerate(lines):
        if line["measured"].step_time_s is not None:
            table.add_row(str(i), seconds(line["measured"].step_time_s), seconds(line["before"].step_time_s), seconds(line["after"].step_time_s), "")
        if line["measured"].peak_memory_gib is not None:
            table.add_row(str(i), *(f"{line[key].peak_memory_gib:.1f} GiB" for key in ("measured", "before", "after")), "")
    out.print()
    out.print(table)
