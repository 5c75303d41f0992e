"""Tensor parallelism: attention heads and FFN columns over t GPUs of a node."""
from functools import lru_cache

from solver.axes.divisors import divisors
from solver.domain.cluster import NodeGroup
from solver.domain.estimate import Reason
from solver.domain.identity import Same
from solver.domain.layout import Layout, unlike_stages
from solver.domain.model import Architecture
from solver.domain.problem import Problem

NAME = "tensor"
PROBLEMS_KEPT = 32
GROUPS_KEPT = 256


def legal_degrees(problem: Problem) -> tuple[int, ...]:
    """Degrees that divide heads and FFN width, agree with the KV heads, and fit some node group's nodes."""
    return _legal(Same(problem))


@lru_cache(maxsize=PROBLEMS_KEPT)
def _legal(key: Same[Problem]) -> tuple[int, ...]:
    problem = key.value
    return tuple(t for t in divisors(problem.model.num_attention_heads)
                 if not _broken(problem.model, t) and any(fits_nodes(g, t) for g in problem.cluster.node_groups))


def violations(problem: Problem, layout: Layout) -> tuple[Reason, ...]:
    """Broken rules of every stage. Each fix is the nearest degree that breaks none of them."""
    found: list[Reason] = []
    for i, stage in unlike_stages(layout):
        broken = _broken(problem.model, stage.tp)
        for name in stage.groups:
            group = problem.cluster.group(name)
            if not fits_nodes(group, stage.tp):
                broken.append(("tensor.node",
                               f"tp {stage.tp} neither divides the {group.gpus_per_node} GPUs of a node of {name} nor is a multiple"))
        if broken:
            fix = f"tp {_nearest(degrees_on(problem, stage.groups), stage.tp)}"
            found += [Reason(code=code, stage=i, message=message, fix=fix) for code, message in broken]
    return tuple(found)


def degrees_on(problem: Problem, groups: tuple[str, ...]) -> tuple[int, ...]:
    """The legal degrees that fit the nodes of every one of these node groups; 1 always does."""
    return _legal_on(Same(problem), groups)


@lru_cache(maxsize=GROUPS_KEPT)
def _legal_on(key: Same[Problem], groups: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(t for t in _legal(key) if all(fits_nodes(key.value.cluster.group(name), t) for name in groups))


def fits_nodes(group: NodeGroup, tp: int) -> bool:
    """Whether groups of tp GPUs pack nodes (or NVLink domains wider than a node) without straddling them unevenly."""
    if tp > group.nodes * group.gpus_per_node:
        return False
    blocks = {group.gpus_per_node} | {t.size for t in group.tiers if t.name != "network" and t.size > group.gpus_per_node}
    return any(block % tp == 0 or tp % block == 0 for block in blocks)


def model_violations(model: Architecture, tp: int, stage: int | None) -> list[Reason]:
    """Heads, KV heads and FFN width against tp. The vocabulary is padded, so any tp suits it."""
    broken = _broken(model, tp)
    if not broken:
        return []
    legal = tuple(t for t in divisors(model.num_attention_heads) if not _broken(model, t))
    return [Reason(code=code, stage=stage, message=message, fix=f"tp {_nearest(legal, tp)}") for code, message in broken]


def _broken(model: Architecture, tp: int) -> list[tuple[str, str]]:
    """Code and message of every rule between the model and tp."""
    found = []
    heads, kv = model.num_attention_heads, model.kv_heads
    if heads % tp:
        found.append(("tensor.heads", f"{heads} attention heads do not divide by tp {tp}"))
    elif model.mla is None and kv % tp and tp % kv:
        found.append(("tensor.kv_heads", f"{kv} KV heads neither divide by tp {tp} nor divide it"))
    widths = [("FFN width", model.ffn_hidden_size)]
    if model.moe is not None:
        every = all(model.is_moe_layer(i) for i in range(model.num_layers))
        widths = [] if every else widths
        widths += [("shared experts' width", model.moe.shared_width)] if model.moe.shared_width else []
    found += [("tensor.ffn", f"{label} {width} does not divide by tp {tp}") for label, width in widths if width % tp]
    return found


def _nearest(legal: tuple[int, ...], wanted: int) -> int:
    return min(legal, key=lambda t: (abs(t - wanted), t))
