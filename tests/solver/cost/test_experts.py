"""Routed experts: what reaches them, and what their grouped products cost."""
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.catalog.loader import preset
from solver.cost.experts import even_load, expert_elements, expert_work, grouped_s, grouped_weight_gradient_s, routed_tokens
from solver.cost.layer import attention_gemms
from solver.cost.operators import gemm_s
from solver.cost.setting import setting
from solver.cost.share import Share
from solver.domain.model import Architecture, MoE
from solver.errors import InputError
from tests.solver.cost.problems import node_group, problem

FINE = Architecture(num_layers=4, hidden_size=4096, ffn_hidden_size=12288, num_attention_heads=32, num_kv_heads=8, vocab_size=32000,
                    moe=MoE(num_experts=128, top_k=8, expert_ffn_hidden_size=1536))


def share(**changes):
    whole = Share(sequences=1.0, seq_len=4096, tp=1, cp=1, ep=8, etp=1, sequence_parallel=False, kernel="flash_2", eager_norm=False)
    return replace(whole, **changes)


def shared(model=FINE, gpu="H100-SXM5-80GB", **workload):
    return setting(problem(model, groups=(node_group(gpu=gpu),), seq_len=4096, **workload))


def test_few_tokens_hit_few_experts_and_many_hit_all():
    one = even_load(rows=8.0, local=128.0, num_experts=128, top_k=8)
    assert one.experts == pytest.approx(8.0)
    many = even_load(rows=8.0 * 4096, local=128.0, num_experts=128, top_k=8)
    assert many.experts == pytest.approx(128.0)
    assert many.computed == pytest.approx(8 * 4096 + 64 * 128)
    part = even_load(rows=8.0, local=16.0, num_experts=128, top_k=8)       # eight tokens of the expert group hit 128 (1 - (15/16)^8) of 128
    assert part.experts == pytest.approx(16.0 * (1.0 - (15.0 / 16.0) ** 8))
    assert even_load(rows=4.0, local=2.0, num_experts=2, top_k=2).experts == 2.0


def test_few_rows_cost_the_weights_that_are_read():
    rate = shared().machines["g"].linear
    load = even_load(rows=8.0, local=128.0, num_experts=128, top_k=8)
    read = 8 * 3072 * 4096 * rate.element_bytes
    assert grouped_s(rate, load, 3072, 4096) == pytest.approx(read / (rate.bandwidth_bytes_s * rate.curve.bandwidth), rel=0.2)


def test_many_rows_cost_what_one_product_of_all_of_them_does():
    rate = shared().machines["g"].linear
    load = even_load(rows=1e6, local=16.0, num_experts=128, top_k=8)
    assert grouped_s(rate, load, 3072, 4096) == pytest.approx(gemm_s(rate, 1e6, 3072, 4096), rel=0.01)


def test_weight_gradients_of_few_rows_cost_their_gradients():
    rate = shared().machines["g"].linear
    load = even_load(rows=64.0, local=16.0, num_experts=128, top_k=8)
    seconds = grouped_weight_gradient_s(rate, load, 4096, 3072, 4.0)
    assert seconds == pytest.approx(8.0 * load.experts * 4096 * 3072 / (rate.bandwidth_bytes_s * rate.curve.bandwidth), rel=0.2)
    assert grouped_weight_gradient_s(rate, load, 4096, 3072, 2.0) < seconds


@given(rows=st.floats(1.0, 1e5), more=st.floats(1.0, 20.0), local=st.sampled_from([1.0, 4.0, 32.0]), n=st.sampled_from([512, 3072, 14336]))
def test_products_grow_with_rows_and_get_cheaper_per_row(rows, more, local, n):
    rate = shared().machines["g"].linear
    few, many = (even_load(r, local, 128, 8) for r in (rows, rows * more))
    for cost in (lambda load: grouped_s(rate, load, n, 4096), lambda load: grouped_weight_gradient_s(rate, load, n, 4096, 4.0)):
        assert cost(few) <= cost(many) * (1 + 1e-9)
        assert cost(many) / more <= cost(few) * (1 + 1e-9)


@given(ep=st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
def test_more_expert_parallelism_never_costs_a_gpu_more_computation(ep):
    here = shared()
    layer = here.layers[0]
    one, two = (expert_work(here, here.machines["g"], layer, share(ep=d)) for d in (ep, 2 * ep))
    assert two.forward_s <= one.forward_s * (1 + 1e-9)
    assert two.weight_gradient_s <= one.weight_gradient_s * 1.02   # one expert alone has fewer tiles than multiprocessors
    assert routed_tokens(FINE, share(ep=ep)) == 8 * 4096


def test_experts_cut_over_tensor_ranks_do_the_same_work_together():
    here = shared()
    layer = here.layers[0]
    whole = expert_elements(FINE, layer, share(tp=4, etp=1))
    cut = expert_elements(FINE, layer, share(tp=4, etp=4))
    assert cut.activated == pytest.approx(whole.activated)
    assert cut.cast > whole.cast                           # every rank casts the rows of all four
    assert cut.dispatched == whole.dispatched


def test_layers_without_experts_have_none_of_it():
    here = shared(replace(FINE, moe=None))
    work = expert_work(here, here.machines["g"], here.layers[0], share(ep=1))
    assert (work.forward_s, work.input_gradient_s, work.weight_gradient_s) == (0.0, 0.0, 0.0)
    assert expert_elements(here.model, here.layers[0], share(ep=1)).dispatched == 0.0


@pytest.mark.parametrize("bad", [{"num_groups": 3}, {"num_groups": 4, "top_groups": 5}, {"num_groups": 128, "top_groups": 4}])
def test_groups_of_experts_must_hold_a_tokens_experts(bad):
    assert MoE(num_experts=128, top_k=8, expert_ffn_hidden_size=8, num_groups=8, top_groups=4).top_groups == 4
    with pytest.raises(InputError, match="groups"):
        MoE(num_experts=128, top_k=8, expert_ffn_hidden_size=8, **bad)


def test_latent_down_projections_are_replicated_or_run_on_a_ranks_own_tokens():
    deep = preset("deepseek-v3")
    plain, parallel = (attention_gemms(deep, share(tp=2, sequence_parallel=sp)) for sp in (False, True))
    assert plain[0] == (4096, 1536, 7168) and parallel[0] == (2048, 1536, 7168)
    assert plain[2] == (4096, 576, 7168) and parallel[2] == (2048, 576, 7168)
    assert plain[1] == parallel[1] == (4096, 64 * 192, 1536)
