"""Mixtures of experts: less certain the further they are from measured ones."""
from dataclasses import replace

import pytest

from solver.catalog.loader import preset
from solver.cost.expert_confidence import expert_error
from solver.cost.setting import setting
from solver.domain.model import MoE
from tests.solver.cost.problems import SMALL, layout, node_group, problem

DENSE = 0.09
MEASURED = replace(SMALL, moe=MoE(num_experts=128, top_k=8, expert_ffn_hidden_size=256))


def error(model, dense=DENSE, **stage):
    of = setting(problem(model, groups=(node_group(gpu="H100-SXM5-80GB", nodes=64),), seq_len=4096))
    return expert_error(of, layout(model, stage={"ep": 8, **stage}), dense)


def test_measured_models_have_the_error_of_their_runs():
    assert error(SMALL) == DENSE
    assert error(MEASURED) == pytest.approx(0.20)
    assert error(MEASURED, dense=0.35) == pytest.approx(0.35)              # of an unknown device


def test_few_experts_lie_between_dense_models_and_measured_ones():
    few = replace(SMALL, moe=MoE(num_experts=8, top_k=2, expert_ffn_hidden_size=1536))
    assert DENSE < error(few) < 0.20
    assert error(few) == pytest.approx(DENSE + 3 / 7 * (0.20 - DENSE))


def test_every_doubling_beyond_what_is_measured_widens():
    more = replace(SMALL, moe=MoE(num_experts=512, top_k=8, expert_ffn_hidden_size=256))
    assert error(more, ep=16) == pytest.approx(0.20 * (1 + 2 * 0.15))
    assert error(more, ep=8) == pytest.approx(0.20 * (1 + 3 * 0.15))       # half as many tokens to an expert
    assert error(MEASURED, ep=128) == pytest.approx(0.20 * (1 + 0.15))
    fewer_tokens = problem(MEASURED, groups=(node_group(gpu="H100-SXM5-80GB"),), seq_len=512)
    assert expert_error(setting(fewer_tokens), layout(MEASURED, stage={"ep": 8}), DENSE) == pytest.approx(0.20 * (1 + 2 * 0.15))


def test_latent_attention_counts_as_one_doubling():
    deep = preset("deepseek-v3")
    without = replace(deep, mla=None, head_dim=128)
    of = [setting(problem(model, groups=(node_group(gpu="H100-SXM5-80GB", nodes=64),), seq_len=4096)) for model in (deep, without)]
    one, two = (expert_error(each, None, DENSE) for each in of)
    assert one == pytest.approx(two * 1.3 / 1.15)
    assert two > 0.20
