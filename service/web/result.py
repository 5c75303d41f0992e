"""What the result page says about a plan, from the plan resource as the API gives it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.web.cautions import LAUNCHER_NAMES, TIER_WORDS, close_calls, risk_meaning
from service.web.charts import Segment, colour_of, stacked
from service.web.cluster_map import GroupMap, cluster_map, stage_colour
from service.web.figures import percent, plural, ranges, seconds

MEMORY_PARTS = (
    ("weights_gib", "Weights", "c1"),
    ("gradients_gib", "Gradients", "c2"),
    ("optimizer_gib", "Optimizer", "c3"),
    ("activations_gib", "Activations", "c4"),
    ("logits_gib", "Logits", "c5"),
    ("buffers_gib", "Buffers", "c6"),
)
TIME_PARTS = (
    ("compute_s", "Compute", "c1"),
    ("recompute_s", "Recompute", "c7"),
    ("tensor_comm_s", "Tensor traffic", "c2"),
    ("context_comm_s", "Context traffic", "c3"),
    ("expert_comm_s", "Expert traffic", "c4"),
    ("pipeline_comm_s", "Pipeline traffic", "c5"),
    ("data_comm_s", "Data traffic", "c6"),
    ("bubble_s", "Bubble", "c9"),
    ("optimizer_s", "Optimizer", "c8"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One line of the stage table: a stage in all pipelines that treat it alike."""

    stage: int
    pipelines: str  # which ones, when they differ; empty when all are alike
    layers: str
    num_layers: int
    gpus: tuple[str, ...]
    nodes: tuple[str, ...]
    gpu_count: int  # of one pipeline
    degrees: Mapping[str, int]
    recompute: str
    zero_stage: int
    micro_batch_s: float | None
    memory: Mapping[str, float] | None
    bar: tuple[Segment, ...]
    capacity_at: float  # percent of the bar's scale
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A simpler layout beside the plan. `slower` is its step time over the plan's, less one."""

    name: str
    step_time_s: float | None
    slower: float | None
    reason: str | None
    bar: float  # percent of the longest
    best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """Everything that the result template shows."""

    outcome: str
    headline: str
    explanation: str
    result: Mapping[str, Any]
    predicted: Mapping[str, Any]
    plan: Mapping[str, Any] | None
    pp: int
    pipelines: int
    gpus_used: int
    gpus_total: int | None
    stages: tuple[StageRow, ...]
    time: tuple[Segment, ...]
    memory_legend: tuple[tuple[str, str, str], ...]
    risk_meaning: str
    comparisons: tuple[Comparison, ...]
    tier_notes: tuple[str, ...]  # what each tier of launchers gains
    close_calls: tuple[str, ...]  # launchers' best plans that are slower by less than the prediction's error
    alternatives: tuple[Mapping[str, Any], ...]
    map: tuple[GroupMap, ...]


def result_view(resource: Mapping[str, Any], chunk_seconds: Mapping[int, float] | None = None) -> ResultView:
    """The page of a finished plan. `chunk_seconds`: time per micro-batch by stage, where a timeline is at hand."""
    result = resource["result"]
    plan, predicted = result.get("plan"), result.get("predicted") or {}
    groups = ((resource.get("request") or {}).get("cluster") or {}).get("node_groups") or []
    gpu_of = {g["name"]: g["gpu"] if isinstance(g["gpu"], str) else g["gpu"]["name"] for g in groups}
    headline, explanation = _outcome(result, predicted)
    stages = _stage_rows(plan, predicted, gpu_of, chunk_seconds or {}) if plan else ()
    time = predicted.get("time") or {}
    return ResultView(
        outcome=result["outcome"],
        headline=headline,
        explanation=explanation,
        result=result,
        predicted=predicted,
        plan=plan,
        pp=len(plan["pipelines"][0]["stages"]) if plan else 0,
        pipelines=len(plan["pipelines"]) if plan else 0,
        gpus_used=_gpus(plan) if plan else 0,
        gpus_total=_total(groups),
        stages=stages,
        time=stacked([(label, colour, time.get(key) or 0.0) for key, label, colour in TIME_PARTS], sum(v for v in time.values() if v)),
        memory_legend=MEMORY_PARTS,
        risk_meaning=risk_meaning(predicted.get("risk"), ((resource.get("request") or {}).get("constraints") or {}).get("memory_margin")),
        comparisons=_comparisons(result, predicted),
        tier_notes=tier_notes(result),
        close_calls=close_calls(result, predicted),
        alternatives=tuple(_alternatives(result)),
        map=cluster_map(plan, groups) if plan else (),
    )


def _outcome(result: Mapping[str, Any], predicted: Mapping[str, Any]) -> tuple[str, str]:
    step, gap, bound = predicted.get("step_time_s"), result.get("gap"), (result.get("bound") or {}).get("step_time_s")
    others = [(name.replace("_", " "), least) for name, least in (result.get("bound") or {}).items() if name != "step_time_s" and least is not None]
    if others and result["outcome"] in ("optimal", "feasible"):
        found, (what, least) = "Optimal" if result["outcome"] == "optimal" else "Best found", others[0]
        return f"{found}: {seconds(step)} per step", f"No layout in the searched space has a {what} below {least:.4g} (gap {percent(gap)})."
    if result["outcome"] == "optimal":
        return f"Optimal: {seconds(step)} per step", f"Proved: no layout in the searched space is faster than {seconds(bound)} (gap {percent(gap)})."
    if result["outcome"] == "feasible":
        if not bound:
            said = "No bound yet: the search stopped before it could prove one. More time may find a faster layout."
            return f"Best found: {seconds(step)} per step", said
        slower = f"At most {percent(step / bound - 1)} slower than the best possible" if step else "A bound is proved"
        return (
            f"Best found: {seconds(step)} per step",
            f"{slower}: no layout in the searched space takes less than {seconds(bound)}. More time may close the gap.",
        )
    return "No layout fits", "No layout in the searched space obeys every limit. The reasons and the smallest change that helps are below."


def _gpus(plan: Mapping[str, Any]) -> int:
    return sum(len(d["gpus"]) for p in plan["pipelines"] for s in p["stages"] for d in s["devices"])


def _total(groups: Sequence[Mapping[str, Any]]) -> int | None:
    counts = [g["nodes"] * g["gpus_per_node"] - len(g.get("unavailable_gpus") or ()) for g in groups if g.get("gpus_per_node")]
    return sum(counts) if groups and len(counts) == len(groups) else None


def _shape(stage: Mapping[str, Any]) -> tuple[Any, ...]:
    held = Counter(d["node_group"] for d in stage["devices"] for _ in d["gpus"])
    return (
        tuple(map(tuple, stage["layers"])),
        *(stage.get(k, 1) for k in ("tp", "dp", "cp", "ep", "etp", "zero_stage")),
        stage.get("recompute"),
        tuple(sorted(held.items())),
    )


def _stage_rows(
    plan: Mapping[str, Any], predicted: Mapping[str, Any], gpu_of: Mapping[str, str], chunk_seconds: Mapping[int, float]
) -> tuple[StageRow, ...]:
    memories = (predicted.get("memory") or {}).get("stages") or []
    scale = max((max(m["capacity_gib"], m["total_gib"]) for m in memories), default=1.0)
    rows = []
    for i in range(max(len(p["stages"]) for p in plan["pipelines"])):
        kinds: dict[tuple[Any, ...], list[int]] = {}
        for n, pipeline in enumerate(plan["pipelines"]):
            if i < len(pipeline["stages"]):
                kinds.setdefault(_shape(pipeline["stages"][i]), []).append(n)
        for members in kinds.values():
            stages = [plan["pipelines"][n]["stages"][i] for n in members]
            rows.append(
                _stage_row(
                    i, stages, members if len(kinds) > 1 else [], memories[i] if i < len(memories) else None, scale, gpu_of, chunk_seconds.get(i)
                )
            )
    return tuple(rows)


def _stage_row(
    i: int,
    stages: list[Mapping[str, Any]],
    members: list[int],
    memory: Mapping[str, float] | None,
    scale: float,
    gpu_of: Mapping[str, str],
    micro_batch_s: float | None,
) -> StageRow:
    first = stages[0]
    nodes: dict[str, list[int]] = {}
    for s in stages:
        for d in s["devices"]:
            nodes.setdefault(d["node_group"], []).append(d["node"])
    return StageRow(
        stage=i,
        pipelines=ranges(members) if members else "",
        layers=", ".join(f"{a}–{b}" if a != b else f"{a}" for a, b in first["layers"]),
        num_layers=sum(b - a + 1 for a, b in first["layers"]),
        gpus=tuple(gpu_of.get(g, g) for g in nodes),
        nodes=tuple(f"{g} {ranges(where)}" for g, where in nodes.items()),
        gpu_count=sum(len(d["gpus"]) for d in first["devices"]),
        degrees={k: first.get(k, 1) for k in ("tp", "dp", "cp", "ep")},
        recompute=first.get("recompute", "none"),
        zero_stage=first.get("zero_stage", 1),
        micro_batch_s=micro_batch_s,
        memory=memory,
        colour=stage_colour(i),
        bar=stacked([(label, colour, memory[key]) for key, label, colour in MEMORY_PARTS], scale) if memory else (),
        capacity_at=round(100 * memory["capacity_gib"] / scale, 2) if memory else 0.0,
    )


def tier_notes(result: Mapping[str, Any]) -> tuple[str, ...]:
    """What each tier of launchers gains over the one below, a sentence each.

    >>> tier_notes({"tiers": [{"tier": "uneven_layers", "gain": 0.05, "launchers": ["megatron"]}]})
    ('Uneven layers (Megatron-LM) save 5.00 % of the step time of the tier below.',)
    """
    found = []
    for t in result.get("tiers") or []:
        if t.get("gain") is not None:
            names = ", ".join(LAUNCHER_NAMES.get(n, n) for n in t["launchers"])
            saved = f"save {percent(t['gain'])} of the step time of the tier below" if t["gain"] > 1e-6 else "gain nothing over the tier below"
            found.append(f"{TIER_WORDS.get(t['tier'], t['tier']).capitalize()} ({names}) {saved}.")
    return tuple(found)


def baseline_name(name: str) -> str:
    """A baseline in words.

    >>> baseline_name("uniform"), baseline_name("only:h100")
    ('Best uniform layout', 'h100 alone')
    """
    if name == "uniform":
        return "Best uniform layout"
    if name.startswith("launcher:"):
        return f"Best that {LAUNCHER_NAMES.get(name.removeprefix('launcher:'), name)} runs"
    if name.startswith("tier:"):
        return f"Best with {TIER_WORDS.get(name.removeprefix('tier:'), name)}"
    return f"{name.removeprefix('only:')} alone" if name.startswith("only:") else name


def _comparisons(result: Mapping[str, Any], predicted: Mapping[str, Any]) -> tuple[Comparison, ...]:
    best = predicted.get("step_time_s")
    baselines = result.get("baselines") or []
    longest = max([b["step_time_s"] for b in baselines if b.get("step_time_s")] + ([best] if best else []), default=1.0)
    mine = [Comparison(name="This plan", step_time_s=best, slower=0.0, reason=None, bar=100 * best / longest, best=True)] if best else []
    return (
        *mine,
        *(
            Comparison(
                name=baseline_name(b["name"]),
                step_time_s=b.get("step_time_s"),
                reason=b.get("reason"),
                slower=b["step_time_s"] / best - 1 if best and b.get("step_time_s") else None,
                bar=100 * b["step_time_s"] / longest if b.get("step_time_s") else 0.0,
            )
            for b in baselines
        ),
    )


def layout_in_words(plan: Mapping[str, Any]) -> str:
    """One line for a plan: stages by layers and degrees.

    >>> s = {"layers": [[0, 3]], "tp": 2, "devices": [{"node_group": "a", "node": 0, "gpus": [0, 1]}]}
    >>> layout_in_words({"pipelines": [{"micro_batches": 8, "stages": [s]}], "schedule": "1f1b", "micro_batch_size": 1})
    '1 pipeline × 1 stage, layers 4, TP 2, 8 micro-batches of 1, 1f1b, 2 GPUs'
    """
    first = plan["pipelines"][0]
    counts = [sum(b - a + 1 for a, b in s["layers"]) for s in first["stages"]]
    tps = [s.get("tp", 1) for s in first["stages"]]
    recompute = sorted({s.get("recompute", "none") for s in first["stages"]} - {"none"})
    words = [f"{plural(len(plan['pipelines']), 'pipeline')} × {plural(len(counts), 'stage')}", f"layers {_runs(counts)}", f"TP {_runs(tps)}"]
    for key in ("dp", "cp", "ep"):
        degrees = [s.get(key, 1) for s in first["stages"]]
        words += [f"{key.upper()} {_runs(degrees)}"] if max(degrees) > 1 else []
    words += [f"recompute {'/'.join(recompute)}"] if recompute else []
    return ", ".join(
        [
            *words,
            f"{first['micro_batches']} micro-batches of {plan.get('micro_batch_size', 1)}",
            plan.get("schedule", "1f1b"),
            plural(_gpus(plan), "GPU"),
        ]
    )


def _runs(values: list[int]) -> str:
    made: list[list[int]] = []
    for v in values:
        if made and made[-1][0] == v:
            made[-1][1] += 1
        else:
            made.append([v, 1])
    return "·".join(f"{v}×{n}" if n > 1 and len(made) > 1 else str(v) for v, n in made)


def _alternatives(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [{**a, "words": layout_in_words(a["plan"])} for a in result.get("alternatives") or []]


def chunk_seconds(trace: Mapping[str, Any] | None) -> dict[int, float]:
    """Forward plus backward seconds of one micro-batch, by stage, from a timeline (averages over micro-batches and virtual stages' sums)."""
    total: dict[int, float] = {}
    seen: dict[int, set[Any]] = {}
    events = [e for e in (trace or {}).get("traceEvents", ()) if e.get("ph") == "X"]
    first = min((e.get("pid", 0) for e in events), default=None)
    for e in events:
        micro = (e.get("args") or {}).get("micro_batch")
        if e.get("pid", 0) == first and isinstance(e.get("tid"), int) and micro is not None and colour_of(e) != "other":
            total[e["tid"]] = total.get(e["tid"], 0.0) + e["dur"] / 1e6
            seen.setdefault(e["tid"], set()).add(micro)
    return {stage: total[stage] / len(seen[stage]) for stage in total}
