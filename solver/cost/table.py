"""Many uniform layouts of one problem at once: the numbers of `estimate`, digit for digit, without its words.

What layouts share is made once: the frame of stages, the costs of a unit, stages that are alike, boundaries, rules. Times of pipelines and memory of
stages are then arrays over all layouts of a shape (schedule, stages, virtual stages).
"""
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from solver.axes.registry import violations
from solver.cost.estimate import estimate
from solver.cost.pipeline import layer_sizes, tensors_across, unit_spec
from solver.cost.price import pipeline_s
from solver.cost.setting import setting
from solver.cost.stage_sums import StageSums
from solver.cost.uncovered import missing
from solver.cost.unit import UnitCosts
from solver.cost.units import edge_seconds, unit_costs
from solver.domain.degrees import ScheduleName, Strategy
from solver.domain.layout import Layout
from solver.domain.problem import Problem
from solver.domain.uniform import Frame, frame, uniform_layout
from solver.simulate.batch import makespans
from solver.simulate.orders import ORDERS, in_flight
from solver.units import GIB

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Shape = tuple[ScheduleName, int, int]
RULED = attrgetter("tp", "pp", "dp", "cp", "ep", "etp", "virtual_stages", "micro_batch_size", "sequence_parallel", "schedule", "slices", "offload",
                   "shard_group", "ulysses", "layers_per_stage", "pipeline_vocabulary")
"""What the rules of uniform layouts look at: neither recompute nor ZeRO, the loss or the launcher."""
SHAPES_KEPT = 16_384
STATES = ("weights", "gradients", "optimizer")
RISKS = ("safe", "risky", "over", "none")                  # none: the layout cannot be laid onto the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One row per strategy, in order; NaN where `estimate` has None."""

    step_time_s: Floats
    peak_gib: Floats
    capacity_gib: Floats
    risk: NDArray[np.str_]                                 # of RISKS
    feasible: Flags

    @property
    def fits_memory(self) -> Flags:
        return np.isin(self.risk, ("safe", "risky"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """What a frame's layouts share."""

    layers: Ints                                           # [stages, virtual stages, classes of the model]
    units: tuple[int, ...]                                 # first stage on each set of node groups
    unit: tuple[int, ...]                                  # [stages] which of them
    boundaries: tuple[tuple[int, int, bool, int], ...]     # sender, receiver (stages), whether they share a block, tensors that cross
    boundary: tuple[int, ...]                              # [stages] behind each; -1: none


def price_table(problem: Problem, strategies: Sequence[Strategy]) -> Table:
    """Step time and memory of uniform layouts; the same numbers as `estimate` gives each. Raises NotCovered as that does."""
    return _Pricing(problem, strategies).table()


class _Pricing:
    """One call: the columns as they are filled, and what its layouts share."""

    def __init__(self, problem: Problem, strategies: Sequence[Strategy]) -> None:
        self.problem, self.strategies, self.shared = problem, strategies, setting(problem)
        self.step, self.peak, self.capacity = (np.full(len(strategies), np.nan) for _ in range(3))
        self.risk = np.full(len(strategies), RISKS.index("none"))
        self.legal = np.zeros(len(strategies), dtype=bool)
        self.cuts: dict[int, _Cut] = {}
        self.kept: list[Frame] = []
        self.rules: dict[object, bool] = {}

    def table(self) -> Table:
        shapes: dict[Shape, list[tuple[int, Layout, _Cut]]] = defaultdict(list)
        for row, s in enumerate(self.strategies):
            of, counted = frame(self.problem, s), uniform_layout(self.problem, s)
            if of is None or counted is None:
                self._alone(row, s)
                continue
            layout, reasons = counted
            self.legal[row] = not reasons and self._obeys(s, layout)
            shapes[s.schedule, s.pp, s.virtual_stages].append((row, layout, self._cut(of, s.virtual_stages)))
        for shape, rows in shapes.items():
            self._price(shape, rows)
        return Table(step_time_s=self.step, peak_gib=self.peak, capacity_gib=self.capacity, risk=np.array(RISKS)[self.risk],
                     feasible=self.legal & (self.risk < RISKS.index("over")) & ~np.isnan(self.step))

    def _alone(self, row: int, s: Strategy) -> None:
        """A layout whose GPUs have to be named."""
        found = estimate(self.problem, s)
        self.legal[row], self.risk[row] = found.feasible, RISKS.index(found.risk or "none")
        self.step[row] = np.nan if found.step_time_s is None else found.step_time_s
        if found.memory is not None:
            self.peak[row], self.capacity[row] = found.memory.peak_gib, found.memory.capacity_gib

    def _obeys(self, s: Strategy, layout: Layout) -> bool:
        key = RULED(s)
        if key not in self.rules:
            self.rules[key] = not violations(self.problem, layout) and not missing(self.shared, layout)
        return self.rules[key]

    def _cut(self, of: Frame, virtual_stages: int) -> _Cut:
        found = self.cuts.get(id(of))
        if found is None:
            found = self.cuts[id(of)] = _cut(self.problem, of, virtual_stages)
            self.kept.append(of)                           # lest another frame get its id
        return found

    def _price(self, shape: Shape, rows: list[tuple[int, Layout, _Cut]]) -> None:
        """All layouts of a shape: their units one after the other, indices of stages into these, then arrays [layouts, stages]."""
        units: list[UnitCosts] = []
        at, behind = [], []
        for _, layout, cut in rows:
            specs = [unit_spec(layout, layout.stages[i]) for i in cut.units]
            transfers = [edge_seconds(self.problem, specs[cut.unit[i]], specs[cut.unit[j]], near, layout.virtual_stages, across)
                         for i, j, near, across in cut.boundaries]
            at.append([len(units) + u for u in cut.unit])
            behind.append([(*transfers, 0.0)[b] for b in cut.boundary])
            units += [unit_costs(self.problem, spec) for spec in specs]
        index, layouts = np.array([row for row, _, _ in rows]), [layout for _, layout, _ in rows]
        sums = StageSums(self.shared.classes, units, np.array(at), np.array([cut.layers for _, _, cut in rows]))
        self.step[index] = self._pipelines(shape, layouts, sums, np.array(behind)) + sums.sync_s().max(axis=1)
        self._memory(index, layouts, sums)

    def _pipelines(self, shape: Shape, layouts: list[Layout], sums: StageSums, behind: Floats) -> Floats:
        """Seconds of each pipeline, as `price.pipeline_s`; NaN where a schedule is not priced."""
        schedule, stages, virtual = shape
        m = np.array([layout.micro_batches for layout in layouts])
        timed = m % stages == 0 if schedule == "interleaved" else np.full(len(m), virtual == 1 and schedule in ORDERS)
        found = np.full(len(m), np.nan)
        if timed.any():
            transfers = np.repeat(behind[:, :, None], virtual, axis=2)
            transfers[:, -1, -1] = 0.0
            forward, backward = (sums.chunks(way) + transfers for way in ("forward_s", "backward_s"))
            found[timed] = makespans(schedule, forward[timed], backward[timed], m[timed])
        for i in np.flatnonzero(~timed).tolist():
            seconds = pipeline_s(self.problem, layouts[i])
            found[i] = np.nan if seconds is None else seconds
        return found

    def _memory(self, index: Ints, layouts: list[Layout], sums: StageSums) -> None:
        """Memory and risk, as `stage_memory.memory_of` and `risk_of`."""
        held = np.array([_held(layout.schedule, layout.pp, layout.micro_batches, layout.virtual_stages) for layout in layouts])
        weights, gradients, optimizer = (_gib(np.maximum(0.0, sums.stages(f"{part}_bytes"))) for part in STATES)
        activations, capacity = _gib(held * sums.stages("activation_bytes")), _gib(sums.capacity_bytes())
        total = weights + gradients + optimizer + activations + _gib(sums.logits_bytes()) + _gib(sums.buffers_bytes())
        fill = np.divide(total, capacity, out=np.full_like(total, np.inf), where=capacity > 0.0)
        worst = np.arange(len(index)), fill.argmax(axis=1)
        self.peak[index], self.capacity[index] = total[worst], capacity[worst]
        risky = (total > (1.0 - self.problem.memory_margin) * capacity).any(axis=1)
        self.risk[index] = np.where((total > capacity).any(axis=1), RISKS.index("over"), np.where(risky, RISKS.index("risky"), RISKS.index("safe")))


def _cut(problem: Problem, of: Frame, virtual_stages: int) -> _Cut:
    last, groups = len(of.layers) - 1, list(dict.fromkeys(of.groups))
    boundaries: dict[tuple[int, int, bool, int], tuple[int, tuple[int, int, bool, int]]] = {}
    unit, boundary = tuple(groups.index(names) for names in of.groups), []
    for i, layers in enumerate(of.layers):
        behind = i + 1 if i < last else 0
        if last == 0 or (i == last and virtual_stages == 1):
            boundary.append(-1)
            continue
        near, across = of.edges[i].same_node, tensors_across(problem.model, layers[0][1] + 1)
        boundary.append(boundaries.setdefault((unit[i], unit[behind], near, across), (len(boundaries), (i, behind, near, across)))[0])
    return _Cut(layers=np.array([layer_sizes(problem, layers) for layers in of.layers]), units=tuple(of.groups.index(names) for names in groups),
                unit=unit, boundaries=tuple(b for _, b in boundaries.values()), boundary=tuple(boundary))


def _gib(size_bytes: Floats) -> Floats:
    return size_bytes / GIB


@lru_cache(maxsize=SHAPES_KEPT)
def _held(schedule: ScheduleName, stages: int, micro_batches: int, virtual_stages: int) -> tuple[float, ...]:
    return tuple(in_flight(schedule, i, stages, micro_batches, virtual_stages) for i in range(stages))
