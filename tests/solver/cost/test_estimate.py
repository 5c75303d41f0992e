"""From strategies and plans to estimates."""
import pytest

from solver.cost.estimate import estimate
from solver.cost.price import price
from solver.domain.degrees import Strategy
from solver.domain.model import Architecture, MoE
from solver.domain.placement import expand
from solver.domain.problem import Problem
from solver.domain.reading import layout_of
from solver.domain.workload import ServingWorkload
from solver.errors import NotCovered
from tests.solver.cost.problems import SMALL, problem


def test_a_strategy_and_its_plan_have_the_same_estimate():
    of, strategy = problem(), Strategy(tp=2, pp=2, dp=8)
    plan, reasons = expand(of, strategy)
    assert not reasons
    laid, _ = layout_of(of, plan)
    assert estimate(of, strategy) == estimate(of, plan) == price(of, laid)


def test_a_cluster_that_is_too_small_has_a_reason_and_no_time():
    answer = estimate(problem(), Strategy(tp=8, dp=64))
    assert answer.step_time_s is None and answer.memory is None and not answer.feasible
    assert [r.code for r in answer.reasons] == ["cluster.too_small"]
    assert answer.model.parameters > 0


def test_a_batch_that_does_not_divide_is_priced_with_one_reason():
    answer = estimate(problem(), Strategy(dp=3))
    assert answer.step_time_s > 0.0 and not answer.feasible
    assert [r.code for r in answer.reasons] == ["data.batch_indivisible"]


def test_what_is_not_priced_is_refused():
    serving = ServingWorkload(kind="serving", input_len=8, output_len=8, concurrency=1)
    with pytest.raises(NotCovered, match="serving"):
        estimate(Problem(model=SMALL, cluster=problem().cluster, workload=serving), Strategy())
    vision = Architecture(kind="vision", num_layers=2, hidden_size=64, ffn_hidden_size=64, num_attention_heads=2, vocab_size=10)
    with pytest.raises(NotCovered, match="vision"):
        estimate(problem(vision), Strategy())


def test_confidence_widens_with_what_is_unknown():
    def expected(model: Architecture, **strategy: object) -> float:
        return estimate(problem(model), Strategy(**strategy)).confidence.expected_error

    def experts(n: int) -> Architecture:
        return Architecture(num_layers=4, hidden_size=512, ffn_hidden_size=1536, num_attention_heads=8, vocab_size=4096,
                            moe=MoE(num_experts=n, top_k=2, expert_ffn_hidden_size=256))

    assert expected(SMALL) < expected(experts(8)) < expected(experts(128))
    assert expected(SMALL, pp=2, schedule="zb-h1") > expected(SMALL, pp=2)
