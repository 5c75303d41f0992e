"""Hardware scaling and diminishing returns of FSDP (arXiv 2411.13055): what more GPUs add, and when tensor parallelism pays."""
from functools import cache

import pytest

from solver.search.result import SearchResult
from tests.systems.asked import Body, estimated, nodes, planned

LLAMA_7B: Body = {"architecture": {"num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 11008, "num_attention_heads": 32, "vocab_size": 32_000}}
FSDP: Body = {"zero_stage": 3, "micro_batch_size": 2}
SHARDED: Body = {"max_pp": 1, "cp": [1], "zero_stage": [3]}     # fully sharded data parallelism, with or without tensor parallelism


def request(count: int, batch: int, gpu: str = "H100-SXM5-80GB", **more: object) -> Body:
    group = more.pop("group", {})
    workload = {"kind": "training", "seq_len": 4096, "global_batch_size": batch}
    return {"model": LLAMA_7B, "cluster": nodes(count, gpu, **group), "workload": workload, **more}


@cache
def best(count: int, objective: str = "throughput") -> SearchResult:
    """The best sharded layout for 512 sequences a step on so many nodes of 8."""
    found = planned(request(count, 512, objective=objective, constraints=SHARDED, search={"time_limit_s": 30.0, "alternatives": 0}))
    assert found.outcome == "optimal" and found.plan is not None and found.predicted is not None
    return found


def rates(found: SearchResult, gpus: int) -> tuple[float, float]:
    assert found.predicted is not None and found.predicted.tokens_per_s is not None
    return found.predicted.tokens_per_s, found.predicted.tokens_per_s / gpus


def test_more_gpus_are_worth_less_each_at_a_fixed_batch() -> None:
    """From the number of nodes on at which sharding no longer frees memory for larger micro-batches."""
    found = [rates(best(n), 8 * n) for n in (4, 16, 32, 64, 128)]
    for (few, each), (many, less) in zip(found, found[1:], strict=False):
        assert many > few and less < each
    assert found[-1][1] < 0.85 * found[0][1]


def test_more_gpus_are_worth_less_each_at_a_fixed_batch_per_gpu() -> None:
    """Rings grow with their ranks: 37 % less per GPU were measured from 128 to 2,048, of which only the latency of gathering is predicted."""
    found = [estimated(request(n, 16 * n, strategy={**FSDP, "dp": 8 * n})) for n in (16, 32, 64, 128, 256)]
    together, each = [f.tokens_per_s or 0.0 for f in found], [f.tokens_per_s_per_gpu or 0.0 for f in found]
    assert together == sorted(together) and each == sorted(each, reverse=True) and each[-1] < 0.98 * each[0]


def test_tensor_parallelism_replaces_pure_sharding_at_some_number_of_gpus() -> None:
    degrees = [found.plan.pipelines[0].stages[0].tp for found in (best(n) for n in (4, 16, 64, 128)) if found.plan is not None]
    assert degrees[0] == 1 and degrees[-1] >= 2 and degrees == sorted(degrees)


def test_the_least_energy_takes_fewer_gpus_than_the_least_time() -> None:
    fast, thrifty = best(32), best(32, "energy")
    assert fast.predicted is not None and thrifty.predicted is not None
    assert (thrifty.predicted.gpus or 0) < (fast.predicted.gpus or 0)
    assert (thrifty.predicted.energy_per_step_j or 0.0) < (fast.predicted.energy_per_step_j or 0.0)
    assert thrifty.bound_worth == pytest.approx(thrifty.predicted.energy_per_step_j) and thrifty.bound_s is None
    assert [b.step_time_s for b in thrifty.baselines] == [fast.predicted.step_time_s]


def test_dearer_gpus_are_used_only_where_time_counts() -> None:
    """`cost` weighs money: A100s at a third of the price do the work of which H100s would do twice as much."""
    groups = [{"name": "a", "nodes": 2, "gpu": "A100-SXM4-80GB", "price_per_gpu_hour": 1.0},
              {"name": "h", "nodes": 2, "gpu": "H100-SXM5-80GB", "price_per_gpu_hour": 3.5}]
    body = {**request(1, 64), "cluster": {"node_groups": groups}, "constraints": {**SHARDED, "tp": [1]},
            "search": {"time_limit_s": 20.0, "alternatives": 0}}
    fast, cheap = planned(body), planned({**body, "objective": "cost"})
    used = [{d.node_group for p in f.plan.pipelines for s in p.stages for d in s.devices} for f in (fast, cheap) if f.plan is not None]
    assert "h" in used[0] and used[1] == {"a"}
    assert cheap.outcome == "optimal" and cheap.predicted is not None and fast.predicted is not None
    assert (cheap.predicted.price_per_step or 0.0) < (fast.predicted.price_per_step or 0.0)


def test_the_fewest_gpus_meet_a_target() -> None:
    body = request(2, 64, constraints={**SHARDED, "tp": [1]}, search={"time_limit_s": 20.0, "alternatives": 0}, objective="fewest_gpus")
    any_time, in_time = planned(body), planned({**body, "constraints": {**body["constraints"], "max_step_time_s": 4.0}})
    assert any_time.predicted is not None and in_time.predicted is not None and any_time.outcome == in_time.outcome == "optimal"
    assert (any_time.predicted.gpus or 0) < (in_time.predicted.gpus or 0) < 16
    assert (in_time.predicted.step_time_s or 0.0) <= 4.0 < (any_time.predicted.step_time_s or 0.0)


def test_four_h200_shard_rather_than_split_tensors() -> None:
    """Measured: 53.8 % of the peak sharded over four, 34.7 % with tensors split over four."""
    sharded, split = (estimated(request(1, 64, gpu="H200-SXM-141GB", group={"gpus_per_node": 4}, strategy=strategy))
                      for strategy in ({**FSDP, "dp": 4}, {"tp": 4, "micro_batch_size": 2}))
    assert sharded.mfu is not None and split.mfu is not None
    assert sharded.mfu == pytest.approx(0.538, rel=0.15) and split.mfu == pytest.approx(0.347, rel=0.20)
    assert sharded.mfu > 1.25 * split.mfu
    free = planned(request(1, 64, gpu="H200-SXM-141GB", group={"gpus_per_node": 4}, constraints={"max_pp": 1, "cp": [1]},
                           search={"time_limit_s": 8.0, "alternatives": 0}))
    assert free.plan is not None and {s.tp for p in free.plan.pipelines for s in p.stages} == {1}
