"""The search under layer profiles: it proposes what they cover, says what they leave out, and what would help."""
from dataclasses import replace

from solver.domain.options import Constraints, SearchOptions
from solver.domain.problem import Problem
from solver.domain.profiles import LayerProfile, Profiles
from solver.search import driver
from solver.search.result import SearchResult
from solver.verify import judge
from tests.solver.cost.problems import SMALL, node_group, problem


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
