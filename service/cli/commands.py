"""The commands of `shardwright`. Exit codes: 0 done, 1 no plan (or a layout that would not run), 2 bad input."""
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli import catalogue, reading
from service.cli.faults import BAD_INPUT, NO_PLAN, errors, output, reported
from solver.domain.degrees import Recompute, ScheduleName
from solver.domain.launchers import Launcher, Tier

app = typer.Typer(help="Plans how to train a large model on a cluster of unlike GPUs. Exit codes: 0 done, 1 no plan, 2 bad input.",
                  no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(catalogue.app, name="catalog")

ProblemFile = Annotated[Path, typer.Argument(
    metavar="PROBLEM.json", help="Model, cluster and workload, as POST /v1/plans takes them; - reads standard input.")]
PlanFile = Annotated[Path | None, typer.Option("--plan", metavar="PLAN.json", help="A plan: by itself, in a result, or in a plain JSON export.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for exported files; made where it is missing.")]
Profiles = Annotated[Path | None, typer.Option("--profiles", metavar="PROFILES.json", help="Your measurements, in place of those of the problem.")]
Calibration = Annotated[Path | None, typer.Option("--calibration", metavar="CALIBRATION.json", help="A fit that `shardwright calibrate` wrote.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, as the HTTP interface gives it.")]


@app.command()
def plan(
    problem: ProblemFile,
    time_limit: Annotated[float | None, typer.Option(
        "--time-limit", metavar="SECONDS", help="Longest search; the best plan so far is the answer.")] = None,
    objective: Annotated[str | None, typer.Option(
        "--objective", help="What is least: throughput, energy, cost, fewest_gpus, or time_to_accuracy with a curve in the file.")] = None,
    uniform: Annotated[bool, typer.Option("--uniform", help="Only layouts with the same degrees and GPU count in every stage.")] = False,
    launcher: Annotated[Launcher | None, typer.Option("--launcher", help="Only layouts that this launcher can run.")] = None,
    tier: Annotated[Tier | None, typer.Option("--tier", help="How much stages may differ; also says what the next tier would gain.")] = None,
    profiles: Profiles = None,
    calibration: Calibration = None,
    target: Annotated[str | None, typer.Option(
        "--export", metavar="TARGET", help="Write launch files for this target, see `shardwright export`.")] = None,
    out: Out = Path("."),
    as_json: Json = False,
) -> None:
    """Find the best layout for PROBLEM.json."""
    import orjson

    from service.cli.progress import Watch
    from service.cli.views import show_result
    from service.jobs.planner import LibraryPlanner
    from service.jobs.solve import solve

    with reported():
        if target is not None:
            _known(target)
        posted = reading.with_calibration(reading.with_profiles(reading.read_object(problem), profiles), calibration)
        request, body = reading.plan_request(posted, time_limit_s=time_limit, uniform=uniform, launcher=launcher, tier=tier, objective=objective)
        watch, planner = Watch(errors()), LibraryPlanner()
        with watch.shown():
            solved = solve(planner, body, watch.report, watch.cancelled)
        result = orjson.loads(solved.result)
        if as_json:
            typer.echo(solved.result.decode())
        else:
            show_result(output(), result)
        if result["plan"] is None:
            raise typer.Exit(NO_PLAN)
        if target is not None:
            chosen = reading.checked_plan(result["plan"])
            _write(target, planner.problem(request).of_plan(chosen), chosen, out)


@app.command()
def estimate(
    problem: ProblemFile,
    plan_file: PlanFile = None,
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor parallel degree.")] = None,
    pp: Annotated[int | None, typer.Option("--pp", help="Pipeline stages.")] = None,
    dp: Annotated[int | None, typer.Option(
        "--dp", help="Data parallel degree; left out with other degrees given: whatever fills the cluster.")] = None,
    cp: Annotated[int | None, typer.Option("--cp", help="Context parallel degree.")] = None,
    ep: Annotated[int | None, typer.Option("--ep", help="Expert parallel degree.")] = None,
    etp: Annotated[int | None, typer.Option("--etp", help="Tensor parallel degree of the experts.")] = None,
    virtual_stages: Annotated[int | None, typer.Option("--virtual-stages", help="Virtual stages per pipeline stage.")] = None,
    micro_batch_size: Annotated[int | None, typer.Option("--micro-batch-size", help="Sequences per micro-batch.")] = None,
    zero_stage: Annotated[int | None, typer.Option("--zero-stage", help="ZeRO stage, 0 to 3.")] = None,
    sequence_parallel: Annotated[bool | None, typer.Option(
        "--sequence-parallel/--no-sequence-parallel", help="Split norms over the TP group.")] = None,
    recompute: Annotated[Recompute | None, typer.Option("--recompute", help="Activations to compute again in the backward pass.")] = None,
    schedule: Annotated[ScheduleName | None, typer.Option("--schedule", help="Pipeline schedule.")] = None,
    memory_margin: Annotated[float | None, typer.Option("--memory-margin", help="Share of memory to leave free, 0 to 0.9.")] = None,
    profiles: Profiles = None,
    calibration: Calibration = None,
    as_json: Json = False,
) -> None:
    """Predict time and memory of one layout: of the degrees given, of a plan, or of the strategy or plan that PROBLEM.json holds."""
    import orjson

    from service.cli.views import show_estimate
    from service.jobs.planner import LibraryPlanner
    from service.jobs.render import estimate_body, json_bytes
    from solver.domain.placement import expand

    given: dict[str, Any] = {
        "tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "etp": etp, "virtual_stages": virtual_stages, "micro_batch_size": micro_batch_size,
        "zero_stage": zero_stage, "sequence_parallel": sequence_parallel, "recompute": recompute, "schedule": schedule}
    strategy = {k: v for k, v in given.items() if v is not None}
    with reported():
        body = reading.with_calibration(reading.with_profiles(reading.read_object(problem), profiles), calibration)
        planner = LibraryPlanner()
        if plan_file is None and strategy and "dp" not in strategy:
            gpus = planner.problem(reading.problem_request(body)).cluster.gpus
            strategy["dp"] = max(gpus // ((tp or 1) * (pp or 1) * (cp or 1)), 1)
        posted = reading.plan_of(reading.read_object(plan_file)) if plan_file is not None else None
        request = reading.estimate_request(body, strategy or None, posted, memory_margin)
        made = planner.problem(request)
        found = planner.estimate(made, request)
        answer = json_bytes(estimate_body(found, made.assumptions))
        if as_json:
            typer.echo(answer.decode())
        else:
            layout = request.plan or (expand(made, request.strategy)[0] if request.strategy else None)
            show_estimate(output(), orjson.loads(answer), asdict(layout) if layout else None)
        if not found.feasible:
            raise typer.Exit(NO_PLAN)


@app.command()
def replan(
    problem: ProblemFile,
    plan_file: Annotated[Path, typer.Option("--plan", metavar="PLAN.json", help="The plan that runs now.")],
    remaining_steps: Annotated[int, typer.Option("--remaining-steps", metavar="N", help="Optimizer steps still to run.")],
    restart: Annotated[float, typer.Option("--restart", metavar="SECONDS", help="What any move costs beside its transfers.")] = 0.0,
    time_limit: Annotated[float | None, typer.Option("--time-limit", metavar="SECONDS", help="Longest search for a new plan.")] = None,
    profiles: Profiles = None,
    calibration: Calibration = None,
    as_json: Json = False,
) -> None:
    """The cluster of PROBLEM.json is what is left of the one that the plan runs on: move to another plan, or stay?"""
    import orjson

    from service.cli.progress import Watch
    from service.cli.views import show_replan
    from service.jobs.planner import LibraryPlanner
    from service.jobs.replans import replanned
    from service.jobs.solve import solve

    with reported():
        posted = reading.with_calibration(reading.with_profiles(reading.read_object(problem), profiles), calibration)
        running = reading.plan_of(reading.read_object(plan_file))
        request, body = reading.replan_request(posted, running, remaining_steps, restart, time_limit)
        watch, planner = Watch(errors()), LibraryPlanner()
        with watch.shown():
            solved = solve(planner, body, watch.report, watch.cancelled)
        answer = replanned(planner, request, request.asked, orjson.loads(solved.result))
        if as_json:
            typer.echo(answer.decode())
        else:
            show_replan(output(), orjson.loads(answer))
        if orjson.loads(answer)["plan"] is None:
            raise typer.Exit(NO_PLAN)


@app.command()
def calibrate(
    runs: Annotated[Path, typer.Argument(
        metavar="RUNS.json", help="Measured runs, as POST /v1/observations takes them: an array, or one a line; - reads standard input.")],
    name: Annotated[str, typer.Option("--name", help="Name of the set.")] = "runs",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the fit here, for --calibration.")] = None,
    as_json: Json = False,
) -> None:
    """Fit the cost model to measured runs of your own cluster: few coefficients, none that runs left out of the fit speak against."""
    from service.cli.calibrating import fit_of, read_runs, show_fit
    from service.jobs.render import json_bytes

    with reported():
        fitted, lines = fit_of(read_runs(runs, name), name)
        if as_json:
            typer.echo(json_bytes(asdict(fitted) | {"runs": lines}).decode())
        else:
            show_fit(output(), fitted, lines)
        if out is not None:
            try:
                out.write_bytes(json_bytes(fitted.calibration))
            except OSError as e:
                errors().print(f"{out} cannot be written: {e.strerror}", style="red")
                raise typer.Exit(BAD_INPUT) from None


@app.command()
def export(
    problem: ProblemFile,
    plan_file: Annotated[Path, typer.Option("--plan", metavar="PLAN.json", help="A plan: by itself, in a result, or in a plain JSON export.")],
    target: Annotated[str, typer.Option("--target", metavar="TARGET", help="megatron or json.")] = "megatron",
    out: Out = Path("."),
) -> None:
    """Write a plan as launch files."""
    from service.jobs.planner import LibraryPlanner

    with reported():
        _known(target)
        made = LibraryPlanner().problem(reading.problem_request(reading.read_object(problem)))
        _write(target, made, reading.checked_plan(reading.plan_of(reading.read_object(plan_file))), out)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on, in place of SHARDWRIGHT_HOST.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="TCP port, in place of SHARDWRIGHT_PORT.")] = None,
) -> None:
    """Serve the HTTP interface and the web pages. Every other setting is an environment variable, see docs/settings.md."""
    from service.cli.serving import run

    raise typer.Exit(run({k: v for k, v in {"host": host, "port": port}.items() if v is not None}))


@app.command()
def version() -> None:
    """Versions of the program, the cost model and the catalogue."""
    from service.jobs.planner import LibraryPlanner, solver_version
    from service.main import product_version

    versions = LibraryPlanner().versions()
    typer.echo(f"shardwright {product_version()}")
    typer.echo(f"cost model {versions.cost_model}, catalogue {versions.catalogue}, OR-Tools {solver_version()}")


def _known(target: str) -> None:
    from solver.exporters.registry import exporter

    exporter(target)


def _write(target: str, problem: Any, plan: Any, out: Path) -> None:
    from solver.exporters.registry import export as files_for

    files = files_for(target, problem, plan)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for file in files:
            (out / file.name).write_text(file.text)
            errors().print(f"wrote {out / file.name}")
    except OSError as e:
        errors().print(f"{out} cannot be written: {e.strerror}", style="red")
        raise typer.Exit(BAD_INPUT) from None
