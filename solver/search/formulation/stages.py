"""Formulation A in CP-SAT: layers to unlike stages, positions counted from the last, minimum of S + Z + Q below a cut-off.

The families are listed once in FAMILIES; each is a module with the same signature. The optimum is a lower bound on the step time of every plan that
is not excluded.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from solver.search.bounds import stage_count_bound
from solver.search.exact import Picks
from solver.search.formulation import memory, resources, structure, times
from solver.search.formulation.variables import SCALE, Variables, columns
from solver.search.labels import StagePick
from solver.search.tables import Tables

FAMILIES = (("structure", structure.add), ("resources", resources.add), ("memory", memory.add), ("times", times.add))
DETERMINISTIC_LIMIT = 60.0                                 # CP-SAT's own units of work, about seconds
MAX_EXCLUDED = 500
TOLERANCE = 1e-6                                           # what rounding down to whole units can cost a bound, relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`bound` in seconds holds for every plan not excluded (the cut-off where there is none below it).

    `proved` is False where a limit ended the solve.
    """

    bound: float
    picks: Picks | None
    proved: bool


def solve(t: Tables, cutoff: float, *, excluded: Sequence[Picks] = (), max_stages: int | None = None, stop: Callable[[], bool] = lambda: False,
          seed: int = 0, each: int | None = None) -> Answer:
    """The plan of least S + Z + Q below `cutoff` seconds that is none of `excluded`, with `each` layers in every stage where that is given."""
    positions = min(stage_count_bound(t), max_stages or t.layers)
    if positions < 1:
        return Answer(bound=cutoff, picks=None, proved=True)
    model = cp_model.CpModel()
    v = _variables(model, t, cutoff, positions)
    for _, add in FAMILIES:
        add(model, v)
    total = sum(v.time) + v.steady + v.sync
    model.add(total <= SCALE)
    for k, kinds in enumerate(v.layers if each is not None else ()):
        for u, counts in enumerate(kinds):
            model.add(sum(counts) == each * v.chosen[k][u])
    for picks in excluded:
        _exclude(model, v, picks)
    model.minimize(total)
    return _solve(model, v, total, cutoff, stop, seed)


def _variables(model: cp_model.CpModel, t: Tables, cutoff: float, positions: int) -> Variables:
    c = columns(t)
    classes = len(c.upto)
    grid = range(positions), range(t.num_kinds)
    v = Variables(
        tables=t, columns=c, unit_s=cutoff / SCALE, positions=positions,
        chosen=[[model.new_bool_var(f"y_{k}_{u}") for u in grid[1]] for k in grid[0]],
        first=[[model.new_bool_var(f"f_{k}_{u}") for u in grid[1]] for k in grid[0]],
        layers=[[[model.new_int_var(0, int(c.upto[i, -1]), f"n_{k}_{u}_{i}") for i in range(classes)] for u in grid[1]] for k in grid[0]],
        placed=[model.new_int_var(1, t.layers, f"l_{k}") for k in grid[0]],
        edge=[0] + [model.new_int_var(0, SCALE, f"e_{k}") for k in range(1, positions)],
        time=[], forward=[], steady=model.new_int_var(0, SCALE, "Z"), sync=model.new_int_var(0, SCALE, "Q"))
    for k in grid[0]:
        x, forward = 2 * v.edge[k], v.edge[k]
        for u in grid[1]:
            head = (t.head_time[u], t.head_forward[u]) if k == 0 else (0.0, 0.0)
            shared = (t.shared_time[u], t.shared_forward[u]) if k == 0 else (0.0, 0.0)
            x += v.scaled(head[0]) * v.chosen[k][u] + v.scaled(t.embedding_time[u] - shared[0]) * v.first[k][u]
            forward += v.scaled(head[1]) * v.chosen[k][u] + v.scaled(t.embedding_forward[u] - shared[1]) * v.first[k][u] + 2 * v.chosen[k][u]
            x += sum(v.scaled(c.time[u, i]) * n for i, n in enumerate(v.layers[k][u]))
            forward += sum((v.scaled(c.forward[u, i]) + 1) * n for i, n in enumerate(v.layers[k][u]))     # F is subtracted in Z: rounded up
        v.time.append(x)
        v.forward.append(forward)
    return v


def _exclude(model: cp_model.CpModel, v: Variables, picks: Picks) -> None:
    """Not this plan: some position has another kind or another count."""
    differs = []
    for k, pick in enumerate(reversed(picks)):
        differs.append(v.chosen[k][pick.kind].negated())
        count = sum(v.layers[k][pick.kind])
        for other in (count <= pick.layers - 1, count >= pick.layers + 1):
            literal = model.new_bool_var("")
            model.add(other).only_enforce_if(literal)
            differs.append(literal)
    if len(picks) < v.positions:
        differs += v.chosen[len(picks)]
    model.add_bool_or(differs)


class _Stopper(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]  # OR-Tools is not followed by mypy
    """Asks at each new solution whether to go on."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        super().__init__()
        self._stop = stop

    def on_solution_callback(self) -> None:
        if self._stop():
            self.stop_search()


def _solve(model: cp_model.CpModel, v: Variables, total: Any, cutoff: float, stop: Callable[[], bool], seed: int) -> Answer:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1                      # one worker and a limit in work, not seconds: the same answer every time
    solver.parameters.max_deterministic_time = DETERMINISTIC_LIMIT
    solver.parameters.random_seed = seed
    solver.best_bound_callback = lambda bound: solver.stop_search() if stop() else None
    status = solver.solve(model, _Stopper(stop))
    if status == cp_model.INFEASIBLE:
        return Answer(bound=cutoff, picks=None, proved=True)
    bound = max(0.0, solver.best_objective_bound) * v.unit_s * (1 - 1e-9)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(bound=bound, picks=None, proved=False)
    picks = []
    for k in range(v.positions):
        for u in range(v.tables.num_kinds):
            if solver.value(v.chosen[k][u]):
                picks.append(StagePick(kind=u, layers=int(sum(solver.value(n) for n in v.layers[k][u]))))
    return Answer(bound=bound, picks=tuple(reversed(picks)), proved=status == cp_model.OPTIMAL)
