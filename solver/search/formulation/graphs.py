"""Formulation F in CP-SAT: operators of a graph to devices, transfers on links as resources, least makespan.

An operator runs on one device, a device runs one operator at a time. A tensor between two devices crosses the link of that direction, one at a time,
after its source has ended and before its target begins. Memory is that of all operators on a device together.
"""
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal

from ortools.sat.python import cp_model

from solver.domain.graph import PlacementRequest
from solver.units import bytes_per_s_from_gb_s, seconds_from_us

UNITS = 10**7                                              # of time in the horizon: what times are rounded up to


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """`device` and `start_s` by operator, `sent_s` by tensor (null: not sent). `bound_s` is proved; the makespan is that of exact times."""

    outcome: Literal["optimal", "feasible", "infeasible", "unknown"]
    device: tuple[int, ...] = ()
    order: tuple[float, ...] = ()                          # start of each operator as solved
    sent: tuple[float | None, ...] = ()
    bound_s: float = 0.0


def seconds(graph: PlacementRequest) -> list[list[float]]:
    """[operator][device]"""
    return [[(o.seconds_on or {}).get(d.name, o.seconds / d.speed) for d in graph.devices] for o in graph.operators]


def transfer_s(graph: PlacementRequest) -> list[dict[tuple[int, int], float]]:
    """By tensor, seconds from device to device where a link joins them."""
    at = {d.name: i for i, d in enumerate(graph.devices)}
    found = []
    for t in graph.tensors:
        by: dict[tuple[int, int], float] = {}
        for link in graph.links:
            a, b = (at[end] for end in link.between)
            by[a, b] = by[b, a] = seconds_from_us(link.latency_us) + t.size_bytes / bytes_per_s_from_gb_s(link.bandwidth_gb_s)
        found.append(by)
    return found


def solve(graph: PlacementRequest) -> Placed:
    """The placement of least makespan. Times are rounded down to 1e-7 of the horizon, so that the bound holds for exact ones."""
    runs, sends = seconds(graph), transfer_s(graph)
    horizon_s = sum(max(row) for row in runs) + sum(max(by.values(), default=0.0) for by in sends)
    unit_s = max(horizon_s, 1e-12) / UNITS
    model = cp_model.CpModel()
    devices, operators = range(len(graph.devices)), range(len(graph.operators))
    on = [[model.new_bool_var(f"on_{i}_{d}") for d in devices] for i in operators]
    start = [model.new_int_var(0, UNITS, f"s_{i}") for i in operators]
    end = [model.new_int_var(0, UNITS, f"e_{i}") for i in operators]
    busy: dict[Any, list[Any]] = defaultdict(list)
    for i in operators:
        model.add_exactly_one(on[i])
        for d in devices:
            size = int(runs[i][d] / unit_s)
            busy[d].append(model.new_optional_interval_var(start[i], size, end[i], on[i][d], f"i_{i}_{d}"))
    sent = [_send(model, graph, k, sends[k], unit_s, on, start, end, busy) for k in range(len(graph.tensors))]
    for intervals in busy.values():
        model.add_no_overlap(intervals)
    _limits(model, graph, on)
    makespan = model.new_int_var(0, UNITS, "makespan")
    model.add_max_equality(makespan, end)
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1                      # one worker and a limit in work: the same answer every time
    solver.parameters.max_deterministic_time = graph.work_limit
    solver.parameters.random_seed = graph.seed
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Placed(outcome="infeasible")
    bound_s = max(0.0, solver.best_objective_bound) * unit_s
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Placed(outcome="unknown", bound_s=bound_s)
    chosen = tuple(next(d for d in devices if solver.value(on[i][d])) for i in operators)
    at = {o.name: i for i, o in enumerate(graph.operators)}
    crosses = [chosen[at[t.source]] != chosen[at[t.target]] for t in graph.tensors]
    return Placed(outcome="optimal" if status == cp_model.OPTIMAL else "feasible", device=chosen, order=tuple(float(solver.value(s)) for s in start),
                  sent=tuple(float(solver.value(s)) if out else None for s, out in zip(sent, crosses, strict=True)), bound_s=bound_s)


def _send(model: cp_model.CpModel, graph: PlacementRequest, k: int, by: dict[tuple[int, int], float], unit_s: float, on: list[list[Any]],
          start: list[Any], end: list[Any], busy: dict[Any, list[Any]]) -> Any:
    """One tensor: at once on its device, over a link between two that are joined, never between two that are not."""
    at = {o.name: i for i, o in enumerate(graph.operators)}
    a, b = at[graph.tensors[k].source], at[graph.tensors[k].target]
    model.add(start[b] >= end[a])
    begins = model.new_int_var(0, UNITS, f"t_{k}")
    for d in range(len(graph.devices)):
        for e in range(len(graph.devices)):
            if d == e:
                continue
            if (d, e) not in by:
                model.add_bool_or([on[a][d].negated(), on[b][e].negated()])
                continue
            crosses = model.new_bool_var(f"x_{k}_{d}_{e}")
            model.add_bool_or([on[a][d].negated(), on[b][e].negated(), crosses])
            model.add_implication(crosses, on[a][d])
            model.add_implication(crosses, on[b][e])
            size = int(by[d, e] / unit_s)
            busy[d, e].append(model.new_optional_fixed_size_interval_var(begins, size, crosses, f"j_{k}_{d}_{e}"))
            model.add(begins >= end[a]).only_enforce_if(crosses)
            model.add(start[b] >= begins + size).only_enforce_if(crosses)
    return begins


def _limits(model: cp_model.CpModel, graph: PlacementRequest, on: list[list[Any]]) -> None:
    """Memory in 1e-6 of a device's, operators rounded up; pins."""
    names = [d.name for d in graph.devices]
    for d, device in enumerate(graph.devices):
        if device.memory_bytes is not None:
            shares = [-int(-o.memory_bytes * 1_000_000 // device.memory_bytes) for o in graph.operators]
            model.add(sum(share * row[d] for share, row in zip(shares, on, strict=True)) <= 1_000_000)
    for i, o in enumerate(graph.operators):
        if o.device is not None:
            model.add(on[i][names.index(o.device)] == 1)
