"""Bytes of a move against a count of single slices, and decisions after failures."""
from dataclasses import replace

import numpy as np
import pytest

from solver.cost.estimate import estimate
from solver.cost.setting import setting
from solver.domain.cluster import UnavailableGpu
from solver.domain.degrees import Strategy
from solver.domain.options import Constraints, SearchOptions
from solver.domain.placement import expand
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.search.driver import search
from solver.search.replan.decide import Terms, decide
from solver.search.replan.holdings import gpus_of, held, parts, runs
from solver.search.replan.moving import move
from tests.solver.small_problems import small_problem
from tests.systems.asked import Body, gpt, nodes, problem_in

SLICES = 5_040                                             # of a part: every degree used here divides it


def problem(count: int = 4, gpus: int = 4) -> Problem:
    body: Body = {"model": gpt(12, 1024, 16, 2_000), "cluster": nodes(count, "A100-SXM4-80GB", gpus_per_node=gpus),
                  "workload": {"kind": "training", "seq_len": 1024, "global_batch_size": 48}}
    return problem_in(body)


def plan_of(of: Problem, **degrees: int) -> Plan:
    plan, _ = expand(of, Strategy(**degrees))              # type: ignore[arg-type]
    assert plan is not None
    return plan


def slices(of: Problem, plan: Plan, other: Plan) -> dict[tuple[object, int], set[object]]:
    """Who holds each slice of each part, by midpoints."""
    shared, found = setting(of), {}
    for part in parts(shared, plan, runs(shared, (plan, other))):
        holders = held(plan, part, shared.model.tied_embeddings)
        for i in range(SLICES):
            found[part, i] = {h.gpu for h in holders if h.low <= (i + 0.5) / SLICES < h.high}
    return found


@pytest.mark.parametrize(("before", "after"), [
    ({"tp": 4, "pp": 2, "dp": 2}, {"tp": 2, "pp": 2, "dp": 4}), ({"tp": 2, "pp": 4, "dp": 2, "zero_stage": 3}, {"tp": 4, "pp": 1, "dp": 4}),
    ({"tp": 1, "pp": 3, "dp": 4}, {"tp": 1, "pp": 4, "dp": 3, "zero_stage": 0})])
def test_bytes_are_those_of_slices_that_are_not_there(before: dict[str, int], after: dict[str, int]) -> None:
    of = problem()
    old, new = plan_of(of, **before), plan_of(of, **after)
    there, wanted = slices(of, old, new), slices(of, new, old)
    assert all(there.values()) and all(wanted.values())    # both plans hold every part whole
    lacking = sum(part.size_bytes / SLICES * len(gpus - there[part, i]) for (part, i), gpus in wanted.items())
    found = move(setting(of), old, new)
    assert found.moved_bytes == pytest.approx(lacking, rel=1e-9) and found.checkpoint_bytes == 0
    assert sum(t.moved_bytes for t in found.traffic) == pytest.approx(found.moved_bytes)


def test_nothing_moves_where_nothing_changes() -> None:
    of = problem()
    plan = plan_of(of, tp=2, pp=2, dp=4)
    found = move(setting(of), plan, plan)
    assert found.moved_bytes == 0 and found.seconds == 0 and found.traffic == ()


def test_the_busiest_port_sets_the_time() -> None:
    """Two nodes of one GPU, from the first alone to the second alone: all states over one link."""
    of = problem(2, 1)
    old = plan_of(of, tp=1, pp=1, dp=1)
    stage = old.pipelines[0].stages[0]
    there = replace(stage, devices=(replace(stage.devices[0], node=1),))
    new = replace(old, pipelines=(replace(old.pipelines[0], stages=(there,)),))
    found = move(setting(of), old, new)
    parameters = estimate(of, old).model.parameters
    assert found.moved_bytes == pytest.approx(14 * parameters)       # 2 bytes of weights, 12 of optimizer states
    share = setting(of).constants.communication.network_share
    assert found.seconds == pytest.approx(found.moved_bytes / (of.cluster.node_groups[0].tiers[-1].bandwidth_gb_s * 1e9 * share))


def with_gone(of: Problem, *gone: tuple[int, int]) -> Problem:
    group = replace(of.cluster.node_groups[0], unavailable_gpus=tuple(UnavailableGpu(node=n, gpu=g) for n, g in gone))
    return replace(of, cluster=replace(of.cluster, node_groups=(group,)))


def test_a_dead_gpu_of_a_tensor_group() -> None:
    """The plan cannot stay; a feasible one is found; shards that only the dead GPU held come from the checkpoint."""
    of = problem()
    old = plan_of(of, tp=4, pp=1, dp=4)
    left = with_gone(of, (1, 2))
    found = search(left, "throughput", Constraints(), SearchOptions(time_limit_s=60.0))
    assert found.plan is not None
    answer = decide(left, old, (found.plan,), found.bound_s, Terms(remaining_steps=10))
    assert answer.decision == "move" and not answer.stay.feasible and answer.plan is not None and answer.move is not None
    assert ("g", 1, 2) not in {gpu for p in answer.plan.pipelines for s in p.stages for gpu in gpus_of(s)}
    assert answer.move.checkpoint_bytes == pytest.approx(12 * estimate(of, old).model.parameters / 16, rel=1e-9)
    assert answer.predicted == estimate(left, answer.plan)


def test_equal_nodes_are_renamed_so_that_states_stay() -> None:
    """Three nodes of four run on; the search names them from the first, the move leaves two replicas where they were."""
    of = problem()
    old = plan_of(of, tp=4, pp=2, dp=2, zero_stage=0)
    stages = [s for p in old.pipelines for s in p.stages]
    swapped = replace(old, pipelines=tuple(replace(p, stages=tuple(replace(s, devices=stages[(2 * i + j + 1) % 4].devices)
                                                                   for j, s in enumerate(p.stages))) for i, p in enumerate(old.pipelines)))
    answer = decide(of, old, (swapped,), None, Terms(remaining_steps=1))
    assert move(setting(of), old, swapped).moved_bytes > 0
    assert next(o for o in answer.options if o.name == "searched").moved_bytes == 0


@pytest.mark.parametrize("seed", range(8))
def test_what_is_answered_takes_no_longer_than_any_option(seed: int) -> None:
    of, rng = small_problem(seed), np.random.default_rng(seed)
    result = search(of, "throughput", Constraints(), SearchOptions(time_limit_s=60.0))
    if result.plan is None or not result.alternatives:
        return
    old = result.alternatives[int(rng.integers(len(result.alternatives)))].plan
    steps = int(rng.choice([1, 10, 1000]))
    answer = decide(of, old, (result.plan, *(a.plan for a in result.alternatives)), result.bound_s, Terms(remaining_steps=steps))
    totals = [o.total_s for o in answer.options if o.total_s is not None]
    assert answer.total_s == min(totals) and answer.bound_total_s is not None and answer.bound_total_s <= answer.total_s * (1 + 1e-9)
    assert answer.decision in ("move", "stay") and answer.plan is not None and answer.predicted == estimate(of, answer.plan)
