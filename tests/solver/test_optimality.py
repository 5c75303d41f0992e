"""No layout that an estimate calls feasible is better than a plan called optimal: small problems against the enumeration of their plans."""
import itertools
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from solver.cost.estimate import estimate
from solver.domain.cluster import Cluster
from solver.domain.estimate import Estimate
from solver.domain.options import Constraints, Engine, Objective, SearchOptions
from solver.domain.packing import usable_gpus
from solver.domain.placement import place
from solver.domain.plan import DeviceSlice, Plan
from solver.domain.problem import Problem
from solver.search import baselines, driver
from solver.search.result import SearchResult
from solver.search.solve import Limits
from solver.verify import judge
from tests.solver.cost.problems import node_group
from tests.solver.small_problems import (
    small_problem, some_constraints, uniform_strategies, unlike_layouts, with_collectives, with_operators, with_profiles)

EXACT = 1 + 1e-9
CP_SAT = 1 + 2e-6                                          # its bounds carry the rounding to integers
LISTED = 40_000                                            # layouts of one kind listed per problem; of these some are drawn
LEAST = Limits(beam_labels=1, plain_labels=1, label_limit=1, list_limit=1, tried=1)


@pytest.fixture(autouse=True)
def answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would help an infeasible problem, and simpler families beside the answer, are not asked here; they take longest."""
    monkeypatch.setattr(driver, "smallest_relaxation", lambda *_: None)
    monkeypatch.setattr(baselines, "families", lambda *_: [])


def solved(problem: Problem, constraints: Constraints = Constraints(), engine: Engine = "auto", limits: Limits = Limits(),
           time_limit_s: float = 120.0, objective: Objective = "throughput") -> SearchResult:
    return driver.search(problem, objective, constraints, SearchOptions(time_limit_s=time_limit_s, engine=engine), limits=limits)


def priced_with(problem: Problem, constraints: Constraints) -> Problem:
    return problem if constraints.memory_margin is None else replace(problem, memory_margin=constraints.memory_margin)


def counts(found: Estimate, allowed: Constraints) -> bool:
    """Whether an estimated layout is one that the search may answer with."""
    if not found.feasible or (allowed.memory_margin is not None and found.risk != "safe"):
        return False
    if allowed.max_step_time_s is not None and (found.step_time_s or np.inf) > allowed.max_step_time_s:
        return False
    return allowed.max_price_per_hour is None or (found.price_per_hour is not None and found.price_per_hour <= allowed.max_price_per_hour)


def drawn(items: list, most: int, rng: np.random.Generator) -> list:
    return items if len(items) <= most else [items[i] for i in rng.choice(len(items), most, replace=False)]


def worth_of(found: Estimate, objective: Objective) -> float:
    """What an objective makes least; infinite where there is no figure."""
    name = {"throughput": "step_time_s", "energy": "energy_per_step_j", "cost": "price_per_step", "fewest_gpus": "gpus"}[objective]
    value = getattr(found, name)
    if value is None or found.step_time_s is None:
        return np.inf
    return float(value) + (found.step_time_s * 1e-6 if objective == "fewest_gpus" else 0.0)     # among equals the fastest


def best_by_enumeration(seed: int, problem: Problem, allowed: Constraints, most: int, objective: Objective = "throughput") -> float:
    """Least worth of up to `most` uniform strategies and as many unlike layouts, all of them where there are no more."""
    rng, best = np.random.default_rng(seed), np.inf
    of = priced_with(problem, allowed)
    for strategy in drawn(list(itertools.islice(uniform_strategies(of, allowed), LISTED)), most, rng):
        found = estimate(of, strategy)
        best = min(best, worth_of(found, objective)) if counts(found, allowed) else best
    if not allowed.uniform:
        for layout in drawn(list(itertools.islice(unlike_layouts(of, allowed), LISTED)), most, rng):
            plan = place(of, layout)
            found = estimate(of, plan) if plan is not None else None
            best = min(best, worth_of(found, objective)) if found is not None and counts(found, allowed) else best
    return best


def check(seed: int, most: int, problem: Problem | None = None, objective: Objective = "throughput") -> SearchResult:
    """The search against enumeration; what it answers against the judge."""
    problem, allowed = problem or small_problem(seed), some_constraints(seed)
    answer = solved(problem, allowed, objective=objective)
    best = best_by_enumeration(seed, problem, allowed, most, objective)
    assert answer.search.stopped == "proof", f"seed {seed}: {answer.search}"
    if answer.plan is None or answer.predicted is None:
        assert answer.outcome == "infeasible" and np.isinf(best), f"seed {seed}: a plan of {best} s is missed"
        return answer
    assert answer.outcome == "optimal"
    assert worth_of(answer.predicted, objective) <= best * EXACT, f"seed {seed}"
    assert judge(priced_with(problem, allowed), answer.plan, answer.predicted, allowed) == (), f"seed {seed}"
    return answer


@pytest.mark.parametrize("seed", range(11, 43))
def test_no_layout_beats_an_optimal_plan(seed: int) -> None:
    check(seed, 200)


@pytest.mark.parametrize("objective", ["energy", "cost", "fewest_gpus"])
@pytest.mark.parametrize("seed", range(60, 70))
def test_no_layout_takes_less_than_an_optimal_plan(seed: int, objective: Objective) -> None:
    check(seed, 200, objective=objective)


@pytest.mark.long
@pytest.mark.parametrize("objective", ["energy", "cost", "fewest_gpus"])
def test_no_layout_takes_less_than_an_optimal_plan_of_many_problems(objective: Objective) -> None:
    outcomes = [check(seed, 3_000, objective=objective).outcome for seed in range(2_000, 2_150)]
    assert {"optimal", "infeasible"} == set(outcomes)


@pytest.mark.long
def test_no_layout_beats_an_optimal_plan_of_many_problems() -> None:
    outcomes = [check(seed, 4_000).outcome for seed in range(1_000, 1_400)]
    assert {"optimal", "infeasible"} == set(outcomes)


@pytest.mark.parametrize("seed", [62, 117, *range(160, 176)])
def test_no_layout_beats_an_optimal_plan_by_measured_layers(seed: int) -> None:
    """Measurements that rise per sequence and have gaps: the search proposes nothing that they miss, and misses nothing that they cover."""
    check(seed, 150, with_profiles(small_problem(seed), seed))


@pytest.mark.parametrize("seed", range(300, 312))
def test_no_layout_beats_an_optimal_plan_by_measured_collectives(seed: int) -> None:
    """With measured layers beside them in every second problem."""
    problem = small_problem(seed)
    check(seed, 150, with_collectives(with_profiles(problem, seed) if seed % 2 else problem, seed))


@pytest.mark.parametrize("seed", range(320, 330))
def test_no_layout_beats_an_optimal_plan_by_measured_operators(seed: int) -> None:
    """With measured collectives beside them in every second problem."""
    problem = with_operators(small_problem(seed), seed)
    check(seed, 150, with_collectives(problem, seed) if seed % 2 else problem)


@pytest.mark.long
def test_no_layout_beats_an_optimal_plan_of_many_problems_by_measured_layers() -> None:
    outcomes = [check(seed, 2_000, with_profiles(small_problem(seed), seed)).outcome for seed in range(4_000, 4_300)]
    assert {"optimal", "infeasible"} == set(outcomes)


def scattered(problem: Problem, plan: Plan, rng: np.random.Generator) -> Plan | None:
    """The same stages on other GPUs of their node groups, tensor-parallel groups inside nodes."""
    free = {(g.name, n): list(usable_gpus(g, n)) for g in problem.cluster.node_groups for n in range(g.nodes)}
    for gpus in free.values():
        rng.shuffle(gpus)
    pipelines = []
    for pipeline in plan.pipelines:
        stages = []
        for stage in pipeline.stages:
            devices, names = [], {d.node_group for d in stage.devices}
            for _ in range(stage.cp * stage.dp):
                nodes = [node for node, gpus in free.items() if node[0] in names and len(gpus) >= stage.tp]
                if not nodes:
                    return None
                node = nodes[int(rng.integers(len(nodes)))]
                taken, free[node] = free[node][:stage.tp], free[node][stage.tp:]
                devices.append(DeviceSlice(node_group=node[0], node=node[1], gpus=tuple(int(g) for g in taken)))
            stages.append(replace(stage, devices=tuple(devices)))
        pipelines.append(replace(pipeline, stages=tuple(stages)))
    return replace(plan, pipelines=tuple(pipelines))


def check_other_gpus(seed: int) -> None:
    problem, rng = small_problem(seed, 8), np.random.default_rng(seed)
    answer = solved(problem)
    if answer.plan is None or answer.predicted is None or answer.predicted.step_time_s is None:
        return
    layouts = drawn(list(itertools.islice(unlike_layouts(problem, Constraints()), 5_000)), 60, rng)
    placed = filter(None, (place(problem, layout) for layout in layouts))
    for plan in [answer.plan, *(a.plan for a in answer.alternatives), *placed]:
        for _ in range(10):
            other = scattered(problem, plan, rng)
            found = estimate(problem, other) if other is not None else None
            if found is not None and found.feasible and found.step_time_s is not None:
                assert found.step_time_s * EXACT >= answer.predicted.step_time_s, f"seed {seed}: {other}"


@pytest.mark.parametrize("seed", range(1, 8))
def test_no_choice_of_gpus_beats_an_optimal_plan(seed: int) -> None:
    check_other_gpus(seed)


@pytest.mark.long
def test_no_choice_of_gpus_beats_an_optimal_plan_of_many_problems() -> None:
    for seed in range(2_000, 2_150):
        check_other_gpus(seed)


def step_s(answer: SearchResult) -> float:
    return answer.predicted.step_time_s or np.inf if answer.predicted is not None else np.inf


def check_engines(seed: int) -> None:
    problem, allowed = small_problem(seed, 4), some_constraints(seed)
    answers = [solved(problem, allowed, engine) for engine in ("auto", "dynamic_program", "cp_sat")]
    assert len({a.outcome for a in answers}) == 1, f"seed {seed}: {[a.outcome for a in answers]}"
    auto, labels, cp_sat = (step_s(a) for a in answers)
    assert auto == labels or np.isinf(auto)
    assert auto * EXACT <= cp_sat * EXACT <= auto * CP_SAT * EXACT or np.isinf(auto), f"seed {seed}"


@pytest.mark.parametrize("seed", range(100, 106))
def test_engines_agree(seed: int) -> None:
    check_engines(seed)


@pytest.mark.long
def test_engines_agree_on_many_problems() -> None:
    for seed in range(3_000, 3_100):
        check_engines(seed)


@pytest.mark.parametrize("seed", range(21, 31))
def test_least_limits_never_prove_what_is_not_so(seed: int) -> None:
    """At the least sizes the search may give up, but what it calls proved is so."""
    problem, allowed = small_problem(seed, 5), some_constraints(seed)
    best, little = step_s(solved(problem, allowed)), solved(problem, allowed, limits=LEAST)
    if little.search.stopped == "proof":
        assert step_s(little) == pytest.approx(best, rel=3e-6)
    assert step_s(little) >= best * (1 - 1e-12)
    assert little.bound_s is None or little.bound_s <= best * EXACT


@pytest.mark.parametrize("seed", range(40, 48))
def test_more_is_never_worse(seed: int) -> None:
    """More nodes, more memory, faster links, fewer constraints: none makes the best plan slower."""
    problem, allowed = small_problem(seed, 4), some_constraints(seed)
    if allowed.max_price_per_hour is not None:
        allowed = replace(allowed, max_price_per_hour=None)
    best, groups = step_s(solved(problem, allowed)), problem.cluster.node_groups
    bigger = replace(groups[0], nodes=groups[0].nodes + 1, tiers=tuple(
        replace(t, size=t.size + groups[0].gpus_per_node) if t.name == "network" else t for t in groups[0].tiers))
    memory = [g.device.memory_gib * 1.5 for g in groups]
    roomier = [replace(g, device=replace(g.device, memory_gib=m, reported_memory_gib=m)) for g, m in zip(groups, memory, strict=True)]
    faster = [replace(g, tiers=tuple(replace(t, bandwidth_gb_s=t.bandwidth_gb_s * 2) for t in g.tiers)) for g in groups]
    for changed in ((bigger, *groups[1:]), tuple(roomier), tuple(faster)):
        answer = solved(replace(problem, cluster=replace(problem.cluster, node_groups=changed)), allowed)
        assert step_s(answer) <= best * EXACT or np.isinf(best), f"seed {seed}"
    assert step_s(solved(problem, replace(allowed, recompute=None, zero_stage=None, tp=None))) <= best * EXACT or np.isinf(best)


@pytest.mark.parametrize("seed", range(60, 66))
def test_names_and_order_of_node_groups_change_no_time(seed: int) -> None:
    problem = small_problem(seed, 4)
    names = {g.name: f"x{9 - i}" for i, g in enumerate(problem.cluster.node_groups)}
    groups = tuple(replace(g, name=names[g.name]) for g in reversed(problem.cluster.node_groups))
    links = tuple(replace(link, between=(names[link.between[0]], names[link.between[1]])) for link in problem.cluster.links)
    other = solved(replace(problem, cluster=Cluster(name="d", node_groups=groups, links=links)))
    assert step_s(other) == pytest.approx(step_s(solved(problem)), rel=1e-12)


SAME = """
import sys
from solver.domain.options import Constraints, SearchOptions
from solver.search import baselines, driver
from tests.solver.cost.problems import node_group
from tests.solver.small_problems import small_problem, some_constraints
driver.smallest_relaxation = lambda *_: None
for seed in (4, 20):
    answer = driver.search(small_problem(seed), "throughput", some_constraints(seed), SearchOptions())
    print(answer.outcome, answer.plan, answer.predicted)
"""


def test_the_same_problem_has_the_same_plan_whatever_the_hash_seed() -> None:
    root = Path(__file__).parents[2]
    texts = [subprocess.run([sys.executable, "-c", SAME], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}, cwd=root, check=True,
                            capture_output=True, text=True).stdout for seed in ("0", "1", "2")]
    assert len(set(texts)) == 1
    assert "optimal" in texts[0]


def hard_problem() -> Problem:
    """Three unlike groups and 48 layers: more than a second's work."""
    problem = small_problem(53)
    groups = tuple(node_group(name, gpu, nodes=4, gpus_per_node=8) for name, gpu in (("a", "A100-SXM4-80GB"), ("v", "V100-SXM2-32GB"), ("t", "T4")))
    model = replace(problem.model, num_layers=48, num_attention_heads=32, num_kv_heads=8, hidden_size=4096, ffn_hidden_size=12288, moe=None)
    workload = replace(problem.workload, global_batch_size=256, seq_len=4096)
    return replace(problem, model=model, cluster=Cluster(name="c", node_groups=groups), workload=workload)


def test_a_search_ends_near_its_time_limit_with_a_bound_that_holds() -> None:
    problem = hard_problem()
    started = time.monotonic()
    answer = solved(problem, time_limit_s=1.0)
    assert time.monotonic() - started < 3.0
    assert answer.outcome == "feasible" and answer.bound_s is not None and answer.bound_s < step_s(answer)
    longer = solved(problem, time_limit_s=4.0)
    assert answer.bound_s <= step_s(longer) * EXACT


def test_a_cancelled_search_keeps_its_best_plan() -> None:
    started = time.monotonic()
    answer = driver.search(hard_problem(), "throughput", Constraints(), SearchOptions(time_limit_s=60.0),
                           cancelled=lambda: time.monotonic() - started > 2.0)
    assert time.monotonic() - started < 4.0
    assert answer.search.stopped == "cancelled" and answer.plan is not None
