"""Memory of mixtures of experts: every expert is held, not only those that a token meets."""
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from solver.cost.estimate import estimate
from solver.domain.degrees import Strategy
from solver.domain.model import MoE
from tests.solver.cost.problems import SMALL, node_group, problem


@given(experts=st.sampled_from((4, 8, 16, 64)), top_k=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_experts_need_more_memory_than_a_dense_model_of_their_active_size(experts: int, top_k: int) -> None:
    size = 1024
    sparse = replace(SMALL, moe=MoE(num_experts=experts, top_k=top_k, expert_ffn_hidden_size=size))
    dense = replace(SMALL, ffn_hidden_size=top_k * size)
    groups = (node_group(nodes=1),)
    held = [estimate(problem(model, groups, global_batch_size=8), Strategy()).memory for model in (sparse, dense)]
    assert held[0] is not None and held[1] is not None
    assert held[0].stages[0].weights_gib > held[1].stages[0].weights_gib
    spread = estimate(problem(sparse, groups, global_batch_size=8), Strategy(ep=4, dp=4)).memory
    assert spread is not None and spread.stages[0].weights_gib < held[0].stages[0].weights_gib
