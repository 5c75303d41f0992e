"""The cluster as boxes: which node works for which stages. Large groups are shown as runs of alike nodes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.web.figures import plural, ranges

MAX_BOXES_PER_GROUP = 96
COLOURS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Part of a node given to one stage (None: idle). `share` of the node's GPUs in percent."""

    stage: int | None
    gpus: int
    x: float
    share: float
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One node, or a run of alike nodes."""

    title: str
    nodes: str
    count: int
    slots: tuple[Slot, ...]
    used: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMap:
    """A node group with its boxes."""

    name: str
    gpu: str
    nodes: int
    gpus_per_node: int | None
    boxes: tuple[Box, ...]
    aggregated: bool
    used_gpus: int


def stage_colour(stage: int | None) -> str:
    """The colour class of a stage; classes repeat after `COLOURS`, so the number stands beside it wherever it is shown."""
    return "idle" if stage is None else f"s{stage % COLOURS}"


def cluster_map(plan: Mapping[str, Any], node_groups: Sequence[Mapping[str, Any]]) -> tuple[GroupMap, ...]:
    """One `GroupMap` per node group of the request (or, without a request, per group that the plan names)."""
    held: dict[str, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for pipeline in plan["pipelines"]:
        for stage, s in enumerate(pipeline["stages"]):
            for piece in s["devices"]:
                held[piece["node_group"]][piece["node"]][stage] += len(piece["gpus"])
    groups = node_groups or [{"name": n, "gpu": "", "nodes": max(nodes) + 1} for n, nodes in held.items()]
    return tuple(_group(g, held.get(g["name"], {})) for g in groups)


def _group(group: Mapping[str, Any], held: Mapping[int, Mapping[int, int]]) -> GroupMap:
    most = max((sum(n.values()) for n in held.values()), default=0)
    width = group.get("gpus_per_node") or max(most, 8)
    alike: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
    patterns = [tuple(sorted(held.get(node, {}).items())) for node in range(group["nodes"])]
    aggregated = group["nodes"] > MAX_BOXES_PER_GROUP
    for node, pattern in enumerate(patterns):
        alike[pattern].append(node)
    if aggregated:
        boxes = tuple(_box(pattern, nodes, width) for pattern, nodes in alike.items())
    else:
        boxes = tuple(_box(pattern, [node], width) for node, pattern in enumerate(patterns))
    gpu = group.get("gpu") or ""
    return GroupMap(
        name=group["name"],
        gpu=gpu if isinstance(gpu, str) else gpu.get("name", ""),
        nodes=group["nodes"],
        gpus_per_node=group.get("gpus_per_node"),
        boxes=boxes,
        aggregated=aggregated,
        used_gpus=sum(sum(n.values()) for n in held.values()),
    )


def _box(pattern: tuple[tuple[int, int], ...], nodes: list[int], width: int) -> Box:
    slots, at = [], 0.0
    idle = max(0, width - sum(n for _, n in pattern))
    for stage, gpus in (*pattern, *([(None, idle)] if idle else [])):
        share = 100 * gpus / max(width, 1)
        slots.append(Slot(stage=stage, gpus=gpus, x=at, share=share, colour=stage_colour(stage)))
        at += share
    who = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {ranges(nodes)}"
    what = ", ".join(f"stage {s}: {plural(n, 'GPU')}" for s, n in pattern) or "idle"
    if pattern and idle:
        what += f", idle: {plural(idle, 'GPU')}"
    return Box(title=f"{who}: {what}", nodes=ranges(nodes), count=len(nodes), slots=tuple(slots), used=bool(pattern))
