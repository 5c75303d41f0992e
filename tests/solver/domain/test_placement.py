"""Layouts on GPUs and back: nothing lost, nothing placed where it may not be, nothing called too large that fits."""
import itertools
from dataclasses import replace

import numpy as np
import pytest

from solver.domain.cluster import NodeGroup, UnavailableGpu
from solver.domain.layout import Edge, Layout, StageLayout
from solver.domain.packing import GroupPool, tensor_groups_available, usable_gpus
from solver.domain.placement import expand, layers_by_stage, place, placements
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.domain.reading import layout_of
from tests.solver.cost.problems import SMALL, node_group, problem
from tests.solver.small_problems import small_problem, uniform_strategies, unlike_layouts
from tests.solver.small_problems import some_constraints as anything


def gone(group: NodeGroup, *gpus: tuple[int, int]) -> NodeGroup:
    return replace(group, unavailable_gpus=tuple(UnavailableGpu(node=n, gpu=g) for n, g in gpus))


def stages_of(*stages: tuple[int, int, tuple[str, ...]], replicas: int = 1) -> Layout:
    """A layout of one layer per stage from (tp, width, node groups)."""
    spans = layers_by_stage([1] * len(stages), len(stages))
    return Layout(stages=tuple(StageLayout(layers=s, tp=tp, cp=1, dp=width, ep=1, etp=1, recompute="none", zero_stage=1, groups=groups)
                               for s, (tp, width, groups) in zip(spans, stages, strict=True)),
                  edges=tuple(Edge(same_node=False) for _ in stages), replicas=replicas, micro_batches=4, micro_batch_size=4, schedule="1f1b",
                  virtual_stages=1, sequence_parallel=False, ulysses=1, vocabulary_parallel_loss=True)


def gpus_of(plan: Plan) -> list[tuple[str, int, int]]:
    return [(d.node_group, d.node, g) for p in plan.pipelines for s in p.stages for d in s.devices for g in d.gpus]


def check_gpus(of: Problem, plan: Plan) -> None:
    """Every GPU once, none that is missing, tensor-parallel groups inside nodes or of whole nodes."""
    used = gpus_of(plan)
    assert len(set(used)) == len(used) == sum(s.tp * s.cp * s.dp for p in plan.pipelines for s in p.stages)
    there = {(g.name, n, i) for g in of.cluster.node_groups for n in range(g.nodes) for i in usable_gpus(g, n)}
    assert set(used) <= there
    for stage in (s for p in plan.pipelines for s in p.stages):
        ranks = [(d.node_group, d.node) for d in stage.devices for _ in d.gpus]
        for first in range(0, len(ranks), stage.tp):
            per_node = of.cluster.group(ranks[first][0]).gpus_per_node
            assert len(set(ranks[first:first + stage.tp])) == max(1, stage.tp // per_node)


@pytest.mark.parametrize("seed", range(25))
def test_strategies_are_placed_and_read_back(seed: int) -> None:
    of, rng = small_problem(seed, 10), np.random.default_rng(seed)
    strategies = list(itertools.islice(uniform_strategies(of, anything(seed)), 4_000))
    for i in rng.choice(len(strategies), min(60, len(strategies)), replace=False) if strategies else ():
        strategy = strategies[i]
        plan, reasons = expand(of, strategy)
        fits = sum(tensor_groups_available(g, strategy.tp) for g in of.cluster.node_groups) >= strategy.cp * strategy.dp * strategy.pp
        assert (plan is not None) == fits, f"{strategy}: {reasons}"
        if plan is None:
            continue
        check_gpus(of, plan)
        layout, faults = layout_of(of, plan)
        assert layout is not None and not faults
        assert {(s.tp, s.cp, s.dp, s.recompute) for s in layout.stages} == {(strategy.tp, strategy.cp, 1, strategy.recompute)}
        assert (layout.replicas, layout.pp, layout.ulysses) == (strategy.dp, strategy.pp, strategy.ulysses or 1)
        assert [s.num_layers for s in layout.stages] == list(strategy.layers_per_stage or ())


def packs(of: Problem, layout: Layout) -> bool:
    """By trying every node for every tensor-parallel group: whether a layout of single node groups fits at all."""
    blocks = [(s.groups[0], s.tp) for s in layout.stages for _ in range(layout.replicas * s.dp * s.cp)]
    free = {(g.name, n): len(usable_gpus(g, n)) for g in of.cluster.node_groups for n in range(g.nodes)}

    def fits(at: int) -> bool:
        if at == len(blocks):
            return True
        name, tp = blocks[at]
        for node in [n for n in free if n[0] == name and free[n] >= tp]:
            free[node] -= tp
            done = fits(at + 1)
            free[node] += tp
            if done:
                return True
        return False

    return fits(0)


@pytest.mark.parametrize("seed", range(60))
def test_what_fits_is_placed(seed: int) -> None:
    """Unlike stages on nodes of odd sizes with GPUs missing: a place is found exactly where trying everything finds one."""
    rng = np.random.default_rng(seed)
    groups = []
    for name in ("a", "b")[:int(rng.integers(1, 3))]:
        group = node_group(name, nodes=int(rng.integers(1, 4)), gpus_per_node=int(rng.choice([2, 3, 4, 6])))
        missing = {(int(rng.integers(group.nodes)), int(rng.integers(group.gpus_per_node))) for _ in range(int(rng.integers(0, 3)))}
        groups.append(gone(group, *missing))
    of = problem(SMALL, tuple(groups))
    for _ in range(30):
        stages = [(int(rng.choice([t for t in (1, 2, 3, 4) if t <= of.cluster.group(g).gpus_per_node])), int(rng.choice([1, 1, 2])), (g,))
                  for g in rng.choice([g.name for g in groups], int(rng.integers(1, 5))).tolist()]
        layout = stages_of(*stages, replicas=int(rng.choice([1, 1, 2])))
        plan = place(of, layout)
        assert (plan is not None) == packs(of, layout), f"{layout.stages}"
        if plan is not None:
            check_gpus(of, plan)


def test_leftovers_of_wide_groups_are_used() -> None:
    of = problem(SMALL, (node_group("a", nodes=2, gpus_per_node=6),))
    plan = place(of, stages_of((4, 1, ("a",)), (4, 1, ("a",)), (2, 1, ("a",)), (2, 1, ("a",))))
    assert plan is not None and len(gpus_of(plan)) == 12


def test_groups_of_whole_nodes_pass_over_impaired_ones() -> None:
    group = gone(node_group("a", nodes=5, gpus_per_node=2), (1, 0))
    assert tensor_groups_available(group, 4) == 2
    pool = GroupPool(group)
    assert [sorted({n for _, n, _ in pool.block(4) or ()}) for _ in range(2)] == [[0, 2], [3, 4]]
    assert pool.block(4) is None and pool.block(2) is None and pool.block(1) == [("a", 1, 1)]


@pytest.mark.parametrize(("tp", "available"), [(1, 17), (2, 8), (3, 5), (4, 3), (6, 2), (12, 1), (18, 0)])
def test_tensor_groups_of_six_gpu_nodes_with_one_missing(tp: int, available: int) -> None:
    assert tensor_groups_available(gone(node_group("a", nodes=3, gpus_per_node=6), (1, 5)), tp) == available


def test_straddling_stages_share_what_is_left() -> None:
    """One stage on a and b, one on a and c: the first must not take all of a."""
    of = problem(SMALL, tuple(node_group(n, nodes=1, gpus_per_node=k) for n, k in (("a", 2), ("b", 2), ("c", 1))))
    plan = place(of, stages_of((1, 2, ("a", "b")), (1, 3, ("a", "c"))))
    assert plan is not None
    check_gpus(of, plan)
    assert [{d.node_group for d in s.devices} for s in plan.pipelines[0].stages] == [{"b"}, {"a", "c"}]


def test_every_way_to_share_nodes_is_offered() -> None:
    """Three stages of one GPU on nodes of two: the first pair together, or the last, or the ends."""
    of = problem(SMALL, (node_group("a", nodes=3, gpus_per_node=2),))
    found = set()
    for plan in placements(of, stages_of(*[(1, 1, ("a",))] * 3)):
        if plan is not None:
            layout, faults = layout_of(of, plan)
            assert layout is not None and not faults
            found.add(tuple(e.same_node for e in layout.edges))
    assert {(True, False, False), (False, True, False), (False, False, True)} <= found


@pytest.mark.parametrize("seed", range(10))
def test_unlike_layouts_are_read_back_as_they_were(seed: int) -> None:
    of, rng = small_problem(seed, 6), np.random.default_rng(seed)
    layouts = list(itertools.islice(unlike_layouts(of, anything(seed)), 3_000))
    for i in rng.choice(len(layouts), min(60, len(layouts)), replace=False) if layouts else ():
        plan = place(of, layouts[i])
        if plan is None:
            continue
        check_gpus(of, plan)
        read, _ = layout_of(of, plan)
        if read is not None:
            assert all(set(a.groups) <= set(b.groups) for a, b in zip(read.stages, layouts[i].stages, strict=True))
            assert replace(read, edges=layouts[i].edges, stages=layouts[i].stages) == layouts[i]
