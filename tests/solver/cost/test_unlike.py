"""Pipelines that are not alike: priced each by itself, with one synchronisation behind the slowest."""
from dataclasses import replace

from solver.cost.estimate import estimate
from solver.cost.price import pipeline_s, price
from solver.cost.stages import stages
from solver.cost.timeline import timeline
from solver.domain.layout import Layout, UnlikeLayout
from solver.domain.placement import place
from solver.domain.plan import DeviceSlice, Pipeline, Plan, Stage
from solver.domain.reading import read
from solver.verify import judge
from tests.solver.cost.problems import layout, node_group, problem

FAST_AND_SLOW = (node_group("fast", "H100-SXM5-80GB", nodes=2), node_group("slow", "A100-SXM4-80GB", nodes=2))
PLANNED_LATER = "pipelines.unequal"


def stage(first: int, last: int, group: str, node: int, gpus: tuple[int, ...], **more: object) -> Stage:
    return Stage(layers=((first, last),), tp=len(gpus), devices=(DeviceSlice(node_group=group, node=node, gpus=gpus),), **more)  # type: ignore[arg-type]


def unlike_plan() -> Plan:
    """One pipeline of a stage on two fast GPUs, one of two stages on four and two slow GPUs."""
    return Plan(pipelines=(Pipeline(micro_batches=20, stages=(stage(0, 3, "fast", 0, (0, 1)),)),
                           Pipeline(micro_batches=12, stages=(stage(0, 2, "slow", 1, (0, 1, 2, 3)), stage(3, 3, "slow", 1, (4, 5))))))


def test_equal_pipelines_are_read_and_priced_as_ever():
    of = problem()
    equal = layout(pp=2, replicas=4)
    plan = place(of, equal)
    assert plan is not None
    laid, reasons = read(of, plan)
    assert isinstance(laid, Layout) and not reasons and estimate(of, plan) == price(of, laid)


def test_the_step_is_the_slowest_pipeline_and_the_longest_synchronisation():
    of, plan = problem(groups=FAST_AND_SLOW), unlike_plan()
    unlike, reasons = read(of, plan)
    assert isinstance(unlike, UnlikeLayout) and not reasons
    found = estimate(of, plan)
    spans = [pipeline_s(of, p) or 0.0 for p in unlike.pipelines]
    syncs = [s.sync_s for p in unlike.pipelines for s in stages(of, p)]
    assert found.step_time_s == max(spans) + max(syncs)
    assert spans[0] != spans[1]
    parts = found.time
    assert parts is not None and abs(sum(getattr(parts, n) for n in type(parts).__dataclass_fields__) / found.step_time_s - 1) < 1e-12
    assert found.gpus == 8 and found.memory is not None and len(found.memory.stages) == 3
    assert found.tokens_per_s == 32 * 512 / found.step_time_s
    assert [r.code for r in found.reasons] == [PLANNED_LATER]


def test_states_are_sharded_over_all_pipelines_and_gradients_cross_the_slowest_link():
    slow_link = replace(FAST_AND_SLOW[0], tiers=tuple(replace(t, bandwidth_gb_s=1.0) if t.name == "network" else t for t in FAST_AND_SLOW[0].tiers))
    of, worse = problem(groups=FAST_AND_SLOW), problem(groups=(slow_link, FAST_AND_SLOW[1]))
    plan = unlike_plan()
    assert estimate(worse, plan).step_time_s > estimate(of, plan).step_time_s
    memory = estimate(of, plan).memory
    alone = price(of, layout(stage={"tp": 2, "groups": ("fast",)})).memory
    assert memory is not None and alone is not None
    assert abs(memory.stages[0].optimizer_gib * 2 / alone.stages[0].optimizer_gib - 1) < 1e-12


def test_pipelines_in_one_node_meet_over_its_links():
    of = problem(groups=(node_group("fast", "H100-SXM5-80GB", nodes=2),))

    def step(node: int) -> float:
        plan = Plan(pipelines=(Pipeline(micro_batches=20, stages=(stage(0, 3, "fast", 0, (0, 1)),)),
                               Pipeline(micro_batches=12, stages=(stage(0, 3, "fast", node, (2, 3)),))))
        return estimate(of, plan).step_time_s or 0.0

    assert 0.0 < step(0) < step(1)


def test_every_rule_that_unlike_pipelines_break_is_named():
    of, plan = problem(groups=FAST_AND_SLOW), unlike_plan()
    first, second = plan.pipelines
    short = replace(plan, pipelines=(replace(first, micro_batches=19), second))
    assert {r.code for r in estimate(of, short).reasons} == {PLANNED_LATER, "data.batch_indivisible"}
    sharded = replace(plan, pipelines=tuple(replace(p, stages=tuple(replace(s, zero_stage=3) for s in p.stages)) for p in plan.pipelines))
    assert "pipelines.unequal_zero" in {r.code for r in estimate(of, sharded).reasons}
    assert "pipelines.unequal_launcher" in {r.code for r in estimate(of, replace(plan, framework="megatron")).reasons}
    missing = replace(plan, pipelines=(replace(first, stages=(stage(0, 2, "fast", 0, (0, 1)),)), second))
    assert "pipeline.layers_missing" in {r.code for r in estimate(of, missing).reasons}
    twice = replace(plan, pipelines=(first, replace(second, stages=(second.stages[0], stage(3, 3, "slow", 1, (0, 1))))))
    assert [r.code for r in estimate(of, twice).reasons] == ["placement.used_twice"]


def test_the_judge_prices_them_itself():
    of, plan = problem(groups=FAST_AND_SLOW), unlike_plan()
    found = estimate(of, plan)
    assert {r.code for r in judge(of, plan, found)} == {PLANNED_LATER, "judge.infeasible"}
    assert "judge.price" in {r.code for r in judge(of, plan, replace(found, step_time_s=1.0))}


def test_the_timeline_shows_the_slowest_of_them():
    of, plan = problem(groups=FAST_AND_SLOW), unlike_plan()
    slow = max(range(2), key=lambda i: pipeline_s(of, read(of, plan)[0].pipelines[i]))
    names = str(timeline(of, plan))
    assert ("layers 3-3 on slow" in names) == (slow == 1)
