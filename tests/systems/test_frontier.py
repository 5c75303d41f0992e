"""Training on Frontier (Dash et al. 2023, arXiv 2312.12705): MI250X dies, two tiers inside a node, tensor parallelism inside nodes alone.

Published per die: 73.5, 69.2 and 61.2 TFLOP/s (38.38, 36.14 and 31.96 % of 191.5) for 22, 175 and 1,008 billion parameters, activations checkpointed,
ZeRO-1, FlashAttention-2, Megatron-DeepSpeed. The paper does not say whether recomputed FLOPs count; here they do not.
"""
import pytest

from tests.systems.asked import Body, estimated, gpt, nodes, planned, problem_in

DIE = "MI250X-GCD-64GB"
LAYOUT: Body = {"micro_batch_size": 1, "recompute": "full", "zero_stage": 1, "framework": "megatron_deepspeed"}
# Layers, hidden size, heads, tp, pp, replicas, sequences per replica. That of 22B is not known: the smallest tensor degree with memory to spare.
RUNS = {"22B": (48, 6144, 48, 2, 4, 16, 160), "175B": (96, 12288, 96, 4, 16, 16, 640), "1T": (128, 25600, 128, 8, 64, 6, 1600)}
PUBLISHED = {"22B": 73.5, "175B": 69.2, "1T": 61.2}


def request(name: str) -> Body:
    layers, hidden, heads, tp, pp, dp, sequences = RUNS[name]
    workload = {"kind": "training", "seq_len": 2048, "global_batch_size": sequences * dp, "precision": "fp16", "attention_kernel": "flash_2"}
    return {"model": gpt(layers, hidden, heads), "cluster": nodes(tp * pp * dp // 8, DIE), "workload": workload}


def tflops(name: str) -> float:
    _, _, _, tp, pp, dp, _ = RUNS[name]
    found = estimated({**request(name), "strategy": {**LAYOUT, "tp": tp, "pp": pp, "dp": dp}})
    assert found.feasible and found.model_tflops_per_gpu is not None
    return found.model_tflops_per_gpu


def test_a_node_has_two_tiers_and_a_network() -> None:
    group = problem_in(request("22B")).cluster.node_groups[0]
    assert [(t.size, t.bandwidth_gb_s) for t in group.tiers] == [(2, 200.0), (8, 50.0), (128, 12.5)]


@pytest.mark.parametrize("name", RUNS)
def test_throughput_per_die(name: str) -> None:
    assert tflops(name) == pytest.approx(PUBLISHED[name], rel=0.15)


@pytest.mark.parametrize(("name", "share"), [("175B", 0.942), ("1T", 0.833)])
def test_what_larger_models_lose(name: str, share: float) -> None:
    assert tflops(name) / tflops("22B") == pytest.approx(share, rel=0.10)


@pytest.mark.parametrize("name", RUNS)
def test_tensor_parallelism_stays_inside_a_node(name: str) -> None:
    found = planned({**request(name), "constraints": {"launcher": "megatron"}, "search": {"time_limit_s": 6.0, "alternatives": 0}})
    assert found.plan is not None
    assert all(stage.tp <= 8 for pipeline in found.plan.pipelines for stage in pipeline.stages)


def test_tensor_parallelism_over_two_nodes_is_slower() -> None:
    inside, across = (estimated({**request("175B"), "strategy": {**LAYOUT, "tp": tp, "pp": 128 // tp, "dp": 8}}) for tp in (8, 16))
    assert inside.step_time_s is not None and across.step_time_s is not None and across.step_time_s > 1.1 * inside.step_time_s
