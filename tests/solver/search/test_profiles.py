"""The search under layer profiles: it proposes what they cover, says what they leave out, and what would help."""
import itertools
from dataclasses import replace

import numpy as np
import pytest

from solver.cost.estimate import estimate
from solver.domain.options import Constraints, SearchOptions
from solver.domain.problem import Problem
from solver.domain.profiles import LayerProfile, Profiles
from solver.search import driver
from solver.search.explore import table_factory
from solver.search.probes import family_bound, probe
from solver.search.result import SearchResult
from solver.search.space import Context, Space, divisors
from solver.verify import judge
from tests.solver.cost.problems import SMALL, node_group, problem
from tests.solver.small_problems import small_problem, uniform_strategies, with_profiles


def by_profiles(*covered: tuple[int, int], extrapolate: bool = False, parameter_bytes: float | None = None) -> Problem:
    """Eight A100s with blocks measured at these (tp, micro-batch size)."""
    rows = tuple(LayerProfile(gpu="A100-SXM4-80GB", tp=tp, micro_batch_size=b, layer="block", forward_s=1e-3 * (b + 0.3) / tp,
                              backward_s=2e-3 * (b + 0.3) / tp, parameter_bytes=parameter_bytes) for tp, b in covered)
    of = problem(replace(SMALL, num_layers=8), (node_group(nodes=1),), global_batch_size=16)
    return replace(of, profiles=Profiles(layers=rows, extrapolate=extrapolate))


def solved(of: Problem, **allowed: object) -> SearchResult:
    return driver.search(of, "throughput", Constraints(**allowed), SearchOptions(time_limit_s=60.0))  # type: ignore[arg-type]


def test_every_stage_is_one_that_was_measured():
    of = by_profiles((2, 1), (2, 3))
    answer = solved(of)
    assert answer.outcome == "optimal" and answer.plan is not None and answer.predicted is not None
    ranks = {(s.tp, answer.plan.micro_batch_size / s.dp / s.cp) for p in answer.plan.pipelines for s in p.stages}
    assert {tp for tp, _ in ranks} == {2} and all(1 <= x <= 3 for _, x in ranks)
    assert answer.predicted.confidence.basis == "profile"
    assert judge(of, answer.plan, answer.predicted) == ()
    assert any(r.code == "profile.missing" and r.count > 0 for r in answer.rejected)


def test_an_excluded_layout_is_a_violation_for_the_judge_too():
    of = by_profiles((2, 1), (2, 3))
    answer = solved(by_profiles((1, 1), (1, 4)))
    assert answer.plan is not None and answer.predicted is not None
    assert "profile.missing" in {r.code for r in judge(of, answer.plan, answer.predicted)}


def test_no_plan_says_that_the_profiles_cover_none_and_that_extrapolation_would_help():
    answer = solved(by_profiles((2, 1)), tp=(4,))
    assert answer.outcome == "infeasible"
    assert answer.reasons[0].code == "profile.missing" and "extrapolate" in (answer.reasons[0].fix or "")
    assert answer.relaxation is not None


def test_extrapolation_is_offered_where_no_constraint_is_in_the_way():
    of = by_profiles((3, 1))                               # no head count divides by three
    answer = solved(of)
    assert answer.outcome == "infeasible" and answer.relaxation is not None and "extrapolate" in answer.relaxation.change
    assert solved(by_profiles((3, 1), extrapolate=True)).outcome == "optimal"


def test_measured_weights_decide_what_fits():
    fits, over = (solved(by_profiles((1, 1), (2, 1), parameter_bytes=size)) for size in (1e8, 2e11))
    assert fits.outcome == "optimal" and over.outcome == "infeasible"
    assert [r.code for r in over.reasons] == ["memory.layout"]


def bound_of(of: Problem, context: Context, b: int) -> float:
    space, factory = Space(of, Constraints()), table_factory(of, Constraints())
    at = probe(space, factory, context, b, space.recompute_modes())
    return family_bound(at, space.most_value, context.cp, space.workload.global_batch_size // b)


def test_a_slow_large_micro_batch_excludes_no_smaller_one():
    """One GPU: four sequences in one micro-batch take ten times what they take one by one; three were not measured at all, so not six."""
    rows = [(1, 1e-3), (4, 4e-2)]
    of = replace(problem(SMALL, (node_group(nodes=1, gpus_per_node=1),), global_batch_size=12), profiles=Profiles(layers=tuple(
        LayerProfile(gpu="A100-SXM4-80GB", tp=1, micro_batch_size=b, layer="block", forward_s=s, backward_s=2 * s) for b, s in rows)))
    context = Context(cp=1, ulysses=1, ep=1, etp=1, sequence_parallel=True)
    assert bound_of(of, context, 4) == bound_of(of, context, 12) == bound_of(of, context, 1) <= 12 * 3e-3 * SMALL.num_layers
    answer = solved(of)
    assert answer.plan is not None and answer.plan.micro_batch_size == 1


@pytest.mark.parametrize("seed", range(200, 212))
def test_a_familys_bound_holds_for_all_its_divisors(seed: int) -> None:
    """A micro-batch size excludes its divisors: whatever was measured, none of their layouts may be faster than its bound."""
    of, allowed = with_profiles(small_problem(seed), seed), Constraints()
    batch = Space(of, allowed).workload.global_batch_size
    least: dict[tuple[Context, int], float] = {}
    for strategy in itertools.islice(uniform_strategies(of, allowed), 0, 40_000, 37):
        found = estimate(of, strategy)
        if found.feasible and found.step_time_s is not None:
            context = Context(cp=strategy.cp, ulysses=strategy.ulysses or 1, ep=strategy.ep, etp=strategy.etp, sequence_parallel=True)
            key = context, strategy.micro_batch_size
            least[key] = min(least.get(key, np.inf), found.step_time_s)
    for (context, size), fastest in least.items():
        for b in divisors(batch):
            if b % size == 0:
                bound = bound_of(of, context, b)
                assert bound <= fastest * (1 + 1e-9), f"seed {seed}: micro-batches of {b} bound those of {size} by {bound} s, {fastest} s is possible"
