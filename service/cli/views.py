"""Answers as tables. They are read from the same JSON objects that the HTTP interface returns."""
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from service.cli.tables import plain_table
from service.cli.words import billions, count, percent, printable, runs, seconds

TIME_PARTS = {"compute_s": "compute", "recompute_s": "recompute", "tensor_comm_s": "tensor parallel", "context_comm_s": "context parallel",
              "expert_comm_s": "expert parallel", "pipeline_comm_s": "pipeline transfers", "bubble_s": "bubble", "data_comm_s": "data parallel",
              "optimizer_s": "optimizer"}

BASES = {"profile": " (by your measurements)", "calibrated": " (by your runs)"}


def show_result(out: Console, result: dict[str, Any]) -> None:
    """A search's answer."""
    if result["plan"] is None:
        _show_infeasible(out, result)
    else:
        out.print(f"{proof(result)}: {_headline(result['predicted'])}", style="bold green")
        show_plan(out, result["plan"], result["predicted"])
        _show_baselines(out, result)
        _show_alternatives(out, result)
        _show_beyond(out, result["predicted"])
    _show_notes(out, "Assumed", (f"{a['pointer']}: {a['message']}" for a in result["assumptions"]))
    search = result["search"]
    out.print(f"\nSearch: {search['candidates']:,} candidates, {search['pruned']:,} pruned, {search['solved']:,} solved in {search['wall_s']:.2f} s "
              f"({search['engine']}, stopped by {search['stopped']})", style="dim")


def proof(result: dict[str, Any]) -> str:
    """What is proved of the plan: of its step time, or of what the objective makes least."""
    bound = result["bound"]["step_time_s"]
    others = [name for name in result["bound"] if name != "step_time_s"]
    if others and result["outcome"] != "optimal":
        return f"feasible, {others[0].replace('_', ' ')} not below {result['bound'][others[0]]:.4g}"
    if result["outcome"] == "optimal":
        return "proved optimal"
    if not bound:
        return "feasible, no bound yet"
    return f"feasible, at most {percent(result['predicted']['step_time_s'] / bound - 1)} slower than the best possible (bound {seconds(bound)})"


def show_estimate(out: Console, estimate: dict[str, Any], plan: dict[str, Any] | None) -> None:
    """What one layout would do."""
    style = "bold green" if estimate["feasible"] else "bold red"
    out.print(f"{'feasible' if estimate['feasible'] else 'not feasible'}: {_headline(estimate)}", style=style)
    for reason in estimate["reasons"]:
        _show_reason(out, reason)
    if plan is not None:
        show_plan(out, plan, estimate)
    _show_beyond(out, estimate)
    _show_notes(out, "Assumed", (f"{a['pointer']}: {a['message']}" for a in estimate.get("assumptions", ())))


def show_replan(out: Console, answer: dict[str, Any]) -> None:
    """Move or stay, what either takes, and what is carried where."""
    out.print(f"{answer['decision']}: {printable(answer['reason'])}", style="bold red" if answer["decision"] == "stop" else "bold green")
    table = plain_table("option", "step", "moved GB", "move", "until the end")
    for o in answer["options"]:
        if o["total_s"] is None:
            table.add_row(o["name"], "cannot go on", "", "", "")
        else:
            table.add_row(o["name"], seconds(o["step_time_s"]), f"{o['moved_bytes'] / 1e9:.2f}", seconds(o["move_s"]), seconds(o["total_s"]))
    out.print(table)
    if answer["decision"] == "move":
        for t in answer["move"]["traffic"]:
            out.print(f"  {printable(t['between'][0])} to {printable(t['between'][1])} ({t['link']}): {t['moved_bytes'] / 1e9:.2f} GB")
        show_plan(out, answer["plan"], answer["predicted"])
    _show_notes(out, "Assumed", (f"{a['pointer']}: {a['message']}" for a in answer["assumptions"]))


def show_plan(out: Console, plan: dict[str, Any], predicted: dict[str, Any]) -> None:
    """Degrees, one row per stage of a pipeline, and where the time goes."""
    pipelines = plan["pipelines"]
    first = pipelines[0]
    parallel = "on" if plan["sequence_parallel"] else "off"
    out.print(f"\nPipelines: {len(pipelines)} of {len(first['stages'])} stages, {first['micro_batches']} micro-batches of "
              f"{plan['micro_batch_size']}, schedule {plan['schedule']}, virtual stages {plan['virtual_stages']}, sequence parallel {parallel}")
    table = plain_table("stage", "layers", "GPUs", "tp", "dp", "cp", "ep", "recompute", "ZeRO", "memory GiB")
    memory = (predicted.get("memory") or {}).get("stages") or ()
    for i, stage in enumerate(first["stages"]):
        held = f"{memory[i]['total_gib']:.1f} of {memory[i]['capacity_gib']:.1f}" if i < len(memory) else ""
        table.add_row(str(i), ", ".join(f"{a}-{b}" for a, b in stage["layers"]), "; ".join(_places(pipelines, i)), str(stage["tp"]), str(stage["dp"]),
                      str(stage["cp"]), str(stage["ep"]), stage["recompute"], str(stage["zero_stage"]), held)
    out.print(table)
    if predicted.get("time"):
        spent = sorted(((v, TIME_PARTS[k]) for k, v in predicted["time"].items() if v > 0), reverse=True)
        out.print("\nTime: " + ", ".join(f"{name} {seconds(v)}" for v, name in spent))


def _headline(e: dict[str, Any]) -> str:
    parts = [f"{seconds(e['step_time_s'])} per step", f"{count(e['tokens_per_s'])} tokens/s", f"MFU {percent(e['mfu'])}"]
    if e.get("gpus"):
        parts.append(f"{e['gpus']} GPUs")
    if e.get("memory"):
        parts.append(f"peak {e['memory']['peak_gib']:.1f} of {e['memory']['capacity_gib']:.1f} GiB ({e['risk']})")
    parts.append(f"{billions(e['model']['parameters'])} parameters, expected error {percent(e['confidence']['expected_error'])}"
                 f"{BASES.get(e['confidence']['basis'], '')}")
    return ", ".join(parts)


def _show_beyond(out: Console, e: dict[str, Any]) -> None:
    _show_notes(out, "Beyond what was measured", e["confidence"].get("outside_data", ()))


def _places(pipelines: list[dict[str, Any]], stage: int) -> Iterator[str]:
    nodes: dict[str, list[int]] = {}
    gpus: dict[str, int] = {}
    for pipeline in pipelines:
        for part in pipeline["stages"][stage]["devices"]:
            nodes.setdefault(part["node_group"], []).append(part["node"])
            gpus[part["node_group"]] = gpus.get(part["node_group"], 0) + len(part["gpus"])
    for name, where in nodes.items():
        yield f"{gpus[name]} on {printable(name)} node {runs(where)}"


def _show_baselines(out: Console, result: dict[str, Any]) -> None:
    if not result["baselines"]:
        return
    best = result["predicted"]["step_time_s"]
    table = plain_table("compared with", "step", "this plan is")
    for b in result["baselines"]:
        if b["step_time_s"] is None:
            table.add_row(printable(b["name"]), "no plan", printable(b["reason"] or ""))
        else:
            gain = b["step_time_s"] / best
            table.add_row(printable(b["name"]), seconds(b["step_time_s"]), f"{gain:.2f} times as fast" if gain > 1.005 else "as fast")
    out.print()
    out.print(table)
    for t in result.get("tiers", ()):
        if t["gain"] is not None:
            out.print(f"{t['tier']} ({', '.join(t['launchers'])}): {percent(t['gain'])} less step time than the tier below")


def _show_alternatives(out: Console, result: dict[str, Any]) -> None:
    if not result["alternatives"]:
        return
    table = plain_table("alternative", "step", "why not best")
    for i, a in enumerate(result["alternatives"], 1):
        stages = a["plan"]["pipelines"][0]["stages"]
        table.add_row(f"{i}: {len(a['plan']['pipelines'])} x {len(stages)} stages, tp {'/'.join(dict.fromkeys(str(s['tp']) for s in stages))}",
                      seconds(a["predicted"]["step_time_s"]), printable(a["why_not_best"]))
    out.print()
    out.print(table)


def _show_infeasible(out: Console, result: dict[str, Any]) -> None:
    said = "no plan: nothing in the search space fits" if result["outcome"] == "infeasible" else "no plan found in the time given"
    out.print(said, style="bold red")
    for reason in result["reasons"]:
        _show_reason(out, reason)
    for r in result["rejected"]:
        out.print(f"  {r['code']}: {r['count']:,} candidates, for example {printable(r['example'])}")
    if result["relaxation"]:
        reached = result["relaxation"]["step_time_s"]
        out.print(f"Would work: {printable(result['relaxation']['change'])}" + (f" ({seconds(reached)} per step)" if reached else ""), style="bold")


def _show_reason(out: Console, reason: dict[str, Any]) -> None:
    where = "" if reason["stage"] is None else f" (stage {reason['stage']})"
    out.print(f"  {reason['code']}{where}: {printable(reason['message'])}")
    if reason["fix"]:
        out.print(f"    would do: {printable(reason['fix'])}", style="dim")


def _show_notes(out: Console, title: str, lines: Iterator[str]) -> None:
    found = list(lines)
    if found:
        out.print(f"\n{title}", style="bold")
        for line in found:
            out.print(f"  {printable(line)}")
