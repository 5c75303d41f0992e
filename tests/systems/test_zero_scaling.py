"""Scaling studies of a 13B encoder-decoder under DeepSpeed's ZeRO (arXiv 2310.05350): which stage, and on how many nodes."""
from typing import Any

import pytest

from service.api.strategies import LEVER_SUMMARIES
from solver.search.result import SearchResult
from tests.systems.asked import Body, estimated, nodes, planned

# google/mt5-xxl, config.json: 12.92 billion parameters.
MT5: Body = {"hf_config": {"model_type": "mt5", "is_encoder_decoder": True, "d_model": 4096, "d_ff": 10240, "d_kv": 64, "num_heads": 64,
                           "num_layers": 24, "num_decoder_layers": 24, "vocab_size": 250112, "feed_forward_proj": "gated-gelu",
                           "tie_word_embeddings": False, "relative_attention_num_buckets": 32}}
NODES = 8
DATA_PARALLEL: Body = {"tp": [1], "max_pp": 1, "cp": [1], "zero_stage": [2, 3]}


def request(network_gb_s: float, **more: Any) -> Body:
    return {"model": MT5, "cluster": nodes(NODES, "A100-SXM4-80GB", network_gb_s),
            "workload": {"kind": "training", "seq_len": 1024, "global_batch_size": 128}, **more}


def answered(network_gb_s: float, **constraints: Any) -> SearchResult:
    found = planned(request(network_gb_s, constraints={**DATA_PARALLEL, **constraints}, search={"time_limit_s": 20.0, "alternatives": 0}))
    assert found.outcome == "optimal"
    return found


def nodes_used(found: SearchResult) -> int:
    assert found.plan is not None
    return len({(d.node_group, d.node) for p in found.plan.pipelines for s in p.stages for d in s.devices})


@pytest.mark.parametrize("network_gb_s", [25.0, 6.0])
def test_where_zero_2_fits_it_is_chosen_over_zero_3(network_gb_s: float) -> None:
    found, deeper = answered(network_gb_s), answered(network_gb_s, zero_stage=[3])
    assert found.plan is not None and found.predicted is not None and found.predicted.fits_memory
    assert {s.zero_stage for p in found.plan.pipelines for s in p.stages} == {2}
    assert deeper.predicted is not None and deeper.predicted.step_time_s is not None and found.predicted.step_time_s is not None
    assert deeper.predicted.step_time_s > found.predicted.step_time_s


def test_zero_1_does_not_fit() -> None:
    """2 + 4 bytes of weights and gradients for each of 13 billion parameters are the whole memory."""
    layout = {"dp": 8 * NODES, "micro_batch_size": 1, "recompute": "full"}
    risks = [estimated(request(25.0, strategy={**layout, "zero_stage": z})).risk for z in (1, 2, 3)]
    assert risks == ["over", "safe", "safe"]


def test_zero_2_sends_two_thirds_of_what_zero_3_sends() -> None:
    """Over a network too slow to hide anything, with one micro-batch a step: gradients and weights once, or weights twice and gradients."""
    layout = {"dp": 8 * NODES, "micro_batch_size": 2, "recompute": "full"}
    two, three = (estimated(request(0.5, strategy={**layout, "zero_stage": z})).time for z in (2, 3))
    assert two is not None and three is not None
    assert three.data_comm_s / two.data_comm_s == pytest.approx(1.5, rel=0.05)
    psi = "\N{GREEK CAPITAL LETTER PSI}"
    assert f"2{psi} a step under 1 and 2" in LEVER_SUMMARIES["zero_stage"] and f"3{psi} in every micro-batch" in LEVER_SUMMARIES["zero_stage"]


def test_a_slower_network_is_worth_fewer_nodes() -> None:
    found = [answered(speed) for speed in (25.0, 3.0, 0.5)]
    used = [nodes_used(f) for f in found]
    assert used[0] == NODES and used[-1] < NODES and used == sorted(used, reverse=True)
    assert all(f.predicted is not None and f.predicted.gpus == f.plan.gpus for f in found if f.plan is not None)


def test_the_encoder_stands_before_the_decoder() -> None:
    """Four stages of twelve layers: the encoder's 24 first."""
    layout = {"pp": 4, "dp": 16, "micro_batch_size": 1, "recompute": "full"}
    found = estimated(request(25.0, strategy=layout))
    assert found.feasible and found.model.parameters == 12_921_057_280
    assert found.memory is not None
    first, second, third, last = (s.weights_gib for s in found.memory.stages)
    assert first > second                                   # the embedding
    assert third > first                                    # the decoder begins with a copy of it, and cross-attention makes its layers larger
    assert last == pytest.approx(third, rel=0.01)           # the output layer is as large as the embedding


def test_a_free_search_pipelines_an_encoder_decoder() -> None:
    """On nodes of one GPU behind a slow network nothing but a pipeline is worth sending: decoder stages hold fewer layers, which cost more each."""
    body = {"model": MT5, "cluster": nodes(8, "A100-SXM4-80GB", 2.0, gpus_per_node=1), "constraints": {"dp": [1], "cp": [1], "micro_batch_size": [1]},
            "workload": {"kind": "training", "seq_len": 1024, "global_batch_size": 32}, "search": {"time_limit_s": 8.0, "alternatives": 0}}
    found = planned(body)
    assert found.plan is not None and found.predicted is not None and found.predicted.feasible
    (pipeline,) = found.plan.pipelines
    sizes = [stage.num_layers for stage in pipeline.stages]
    assert len(sizes) > 4 and sum(sizes) == 48 and sizes[0] > sizes[-1]
