"""From a graph to its placement: solved in whole units, then timed exactly in the order that was found."""
from dataclasses import dataclass
from typing import Literal

from solver.domain.graph import PlacementRequest

SLACK = 2e-6                                               # rounding of times, relative: within it a placement is called optimal


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOperator:
    """Where and when an operator runs."""

    name: str
    device: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A tensor that crosses a link."""

    source: str
    target: str
    between: tuple[str, str]                               # from, to
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The answer of POST /v1/placements. `single_device_s`: the least makespan with everything on one device, where one holds it."""

    outcome: Literal["optimal", "feasible", "infeasible", "unknown"]
    makespan_s: float | None
    bound_s: float | None
    gap: float | None
    operators: tuple[PlacedOperator, ...]
    transfers: tuple[Transfer, ...]
    single_device_s: float | None
    speed_up: float | None                                 # single_device_s over makespan_s


def place_graph(graph: PlacementRequest) -> Placement:
    """The placement and order of least makespan, with a proved bound."""
    from solver.search.formulation.graphs import solve     # OR-Tools is slow to import

    found, alone = solve(graph), single_device_s(graph)
    if found.outcome in ("infeasible", "unknown"):
        return Placement(outcome=found.outcome, makespan_s=None, bound_s=None if found.outcome == "infeasible" else found.bound_s, gap=None,
                         operators=(), transfers=(), single_device_s=alone, speed_up=None)
    operators, transfers = timed(graph, found.device, found.order, found.sent)
    makespan_s = max(o.end_s for o in operators)
    gap = max(0.0, 1 - found.bound_s / makespan_s) if makespan_s else 0.0
    return Placement(outcome="optimal" if found.outcome == "optimal" and gap <= SLACK * _events(graph) else "feasible", makespan_s=makespan_s,
                     bound_s=found.bound_s, gap=gap, operators=operators, transfers=transfers, single_device_s=alone,
                     speed_up=alone / makespan_s if alone is not None and makespan_s else None)


def timed(graph: PlacementRequest, device: tuple[int, ...], order: tuple[float, ...],
          sent: tuple[float | None, ...]) -> tuple[tuple[PlacedOperator, ...], tuple[Transfer, ...]]:
    """Exact times: everything as early as its device, link and inputs allow, in the order given by the starts (units of any kind)."""
    from solver.search.formulation.graphs import seconds, transfer_s

    runs, sends = seconds(graph), transfer_s(graph)
    at = {o.name: i for i, o in enumerate(graph.operators)}
    depth = _depths(graph)
    events = [(order[i], 2 * depth[i], 0, i) for i in range(len(graph.operators))]
    events += [(begins, 2 * depth[at[graph.tensors[k].source]] + 1, 1, k) for k, begins in enumerate(sent) if begins is not None]
    free: dict[int | tuple[int, int], float] = {}
    ends, arrived = [0.0] * len(graph.operators), [0.0] * len(graph.tensors)
    placed: dict[int, PlacedOperator] = {}
    moved = []
    for _, _, kind, k in sorted(events):
        if kind:
            tensor = graph.tensors[k]
            way = device[at[tensor.source]], device[at[tensor.target]]
            start = max(free.get(way, 0.0), ends[at[tensor.source]])
            free[way] = arrived[k] = start + sends[k][way]
            moved.append(Transfer(source=tensor.source, target=tensor.target, between=(graph.devices[way[0]].name, graph.devices[way[1]].name),
                                  start_s=start, end_s=arrived[k]))
            continue
        inputs = [max(arrived[j], ends[at[t.source]]) for j, t in enumerate(graph.tensors) if at[t.target] == k]
        start = max([free.get(device[k], 0.0), *inputs])
        free[device[k]] = ends[k] = start + runs[k][device[k]]
        placed[k] = PlacedOperator(name=graph.operators[k].name, device=graph.devices[device[k]].name, start_s=start, end_s=ends[k])
    return tuple(placed[i] for i in range(len(graph.operators))), tuple(moved)


def single_device_s(graph: PlacementRequest) -> float | None:
    """Least time of all operators one after another on one device; None where none holds them or pins forbid it."""
    from solver.search.formulation.graphs import seconds

    runs, total = seconds(graph), sum(o.memory_bytes for o in graph.operators)
    fits = [d for d, w in enumerate(graph.devices) if (w.memory_bytes is None or total <= w.memory_bytes)
            and all(o.device in (None, w.name) for o in graph.operators)]
    return min((sum(row[d] for row in runs) for d in fits), default=None)


def _depths(graph: PlacementRequest) -> list[int]:
    """Longest chain of operators before each: breaks ties of equal starts where operators or transfers take no time."""
    from solver.domain.graph import order

    at = {o.name: i for i, o in enumerate(graph.operators)}
    depth = [0] * len(graph.operators)
    for i in order(graph):
        depth[i] = max((depth[at[t.source]] + 1 for t in graph.tensors if at[t.target] == i), default=0)
    return depth


def _events(graph: PlacementRequest) -> int:
    return len(graph.operators) + len(graph.tensors)
