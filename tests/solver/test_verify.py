"""The judge: silent on answers, loud on each corruption of one."""
from collections.abc import Callable
from dataclasses import replace

import pytest

from solver.cost.estimate import estimate
from solver.domain.cluster import UnavailableGpu
from solver.domain.degrees import Strategy
from solver.domain.options import Constraints
from solver.domain.placement import expand
from solver.domain.plan import DeviceSlice, Plan, Stage
from solver.verify import judge
from tests.solver.cost.problems import node_group, problem

PROBLEM = problem(groups=(node_group("a", nodes=1, price_per_gpu_hour=1.0), node_group("b", "T4", nodes=1, price_per_gpu_hour=1.0)))


def a_plan() -> Plan:
    plan, reasons = expand(PROBLEM, Strategy(tp=2, pp=2, dp=2, micro_batch_size=2, sequence_parallel=True))
    assert plan is not None and not reasons
    return plan


def with_stage(plan: Plan, change: Callable[[Stage], Stage], pipeline: int = 0, stage: int = 0) -> Plan:
    pipelines = list(plan.pipelines)
    stages = list(pipelines[pipeline].stages)
    stages[stage] = change(stages[stage])
    pipelines[pipeline] = replace(pipelines[pipeline], stages=tuple(stages))
    return replace(plan, pipelines=tuple(pipelines))


def on(group: str, node: int, *gpus: int) -> Callable[[Stage], Stage]:
    return lambda stage: replace(stage, devices=(DeviceSlice(node_group=group, node=node, gpus=gpus),))


def in_all(plan: Plan, stage: int, change: Callable[[Stage], Stage]) -> Plan:
    for i in range(len(plan.pipelines)):
        plan = with_stage(plan, change, i, stage)
    return plan


CORRUPTIONS: dict[str, Callable[[Plan], Plan]] = {
    "a layer dropped": lambda p: in_all(p, 0, lambda s: replace(s, layers=((0, 0),))),
    "a layer twice": lambda p: in_all(p, 0, lambda s: replace(s, layers=((0, 2),))),
    "a layer beyond the model": lambda p: in_all(p, 1, lambda s: replace(s, layers=((2, 4),))),
    "stages in the wrong order": lambda p: in_all(in_all(p, 0, lambda s: replace(s, layers=((2, 3),))), 1, lambda s: replace(s, layers=((0, 1),))),
    "a GPU twice": lambda p: with_stage(p, on("a", 0, 0, 1), 1, 1),
    "a GPU twice in a stage": lambda p: with_stage(p, on("a", 0, 0, 0)),
    "no such GPU": lambda p: with_stage(p, on("a", 0, 0, 8)),
    "no such node": lambda p: with_stage(p, on("a", 1, 0, 1)),
    "no such group": lambda p: with_stage(p, on("c", 0, 0, 1)),
    "a GPU too few": lambda p: with_stage(p, on("a", 0, 0)),
    "another group in silence": lambda p: with_stage(p, on("b", 0, 0, 1)),
    "a replica missing": lambda p: replace(p, pipelines=p.pipelines[:1]),
    "fewer micro-batches": lambda p: replace(p, pipelines=tuple(replace(x, micro_batches=4) for x in p.pipelines)),
    "another micro-batch size": lambda p: replace(p, micro_batch_size=4),
    "another recompute mode in silence": lambda p: in_all(p, 0, lambda s: replace(s, recompute="full")),
    "another ZeRO stage in one stage": lambda p: in_all(p, 0, lambda s: replace(s, zero_stage=3)),
    "replicas that differ": lambda p: with_stage(p, lambda s: replace(s, recompute="full")),
    "another schedule in silence": lambda p: replace(p, schedule="gpipe"),
    "virtual stages that are not there": lambda p: replace(p, virtual_stages=2),
    "sequence parallelism off in silence": lambda p: replace(p, sequence_parallel=False),
}


def test_an_honest_answer_has_no_violation() -> None:
    assert judge(PROBLEM, a_plan(), estimate(PROBLEM, a_plan())) == ()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_corruption_is_found(name: str) -> None:
    assert judge(PROBLEM, CORRUPTIONS[name](a_plan()), estimate(PROBLEM, a_plan()))


def test_a_wrong_price_is_found_to_the_last_digit() -> None:
    honest = estimate(PROBLEM, a_plan())
    assert honest.step_time_s is not None
    found = judge(PROBLEM, a_plan(), replace(honest, step_time_s=honest.step_time_s * (1 + 1e-15)))
    assert [r.code for r in found] == ["judge.price"]


def test_an_unavailable_gpu_is_found() -> None:
    group = PROBLEM.cluster.node_groups[0]
    groups = (replace(group, unavailable_gpus=(UnavailableGpu(node=0, gpu=3),)), PROBLEM.cluster.node_groups[1])
    cluster = replace(PROBLEM.cluster, node_groups=groups)
    assert {"judge.no_such_gpu"} <= {r.code for r in judge(replace(PROBLEM, cluster=cluster), a_plan(), estimate(PROBLEM, a_plan()))}


def test_a_plan_over_its_memory_is_found() -> None:
    groups = tuple(replace(g, device=replace(g.device, memory_gib=2.1, reported_memory_gib=2.1)) for g in PROBLEM.cluster.node_groups)
    small = replace(PROBLEM, cluster=replace(PROBLEM.cluster, node_groups=groups), workload=replace(PROBLEM.workload, seq_len=65_536))
    assert "memory.over" in {r.code for r in judge(small, a_plan(), estimate(small, a_plan()))}


BROKEN = (
    Constraints(tp=(1, 4)), Constraints(cp=(2,)), Constraints(dp=(4,)), Constraints(ep=(2,)), Constraints(max_pp=1),
    Constraints(micro_batch_size=(1,)), Constraints(recompute=("full",)), Constraints(zero_stage=(0, 2)), Constraints(schedules=("gpipe",)),
    Constraints(virtual_stages=(2,)), Constraints(node_groups=("b",)), Constraints(max_price_per_hour=7.9))


@pytest.mark.parametrize("constraints", BROKEN, ids=lambda c: next(n for n in c.__slots__ if getattr(c, n)))
def test_each_broken_constraint_is_found(constraints: Constraints) -> None:
    found = judge(PROBLEM, a_plan(), estimate(PROBLEM, a_plan()), constraints)
    assert [r.code.split(".")[0] for r in found] == ["constraints"]
