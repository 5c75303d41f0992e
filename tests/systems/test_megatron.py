"""PTD-P (Narayanan et al. 2021, arXiv 2104.04473): tensor parallelism inside nodes, pipelines between them, on up to 3,072 A100."""
import pytest

from tests.systems.asked import Body, estimated, gpt, nodes, planned

GPT3: Body = {"model": gpt(96, 12288, 96), "cluster": nodes(128, "A100-SXM4-80GB", 25.0),
              "workload": {"kind": "training", "seq_len": 2048, "global_batch_size": 1536}}
TP8_PP16: Body = {"tp": 8, "pp": 16, "dp": 8, "micro_batch_size": 1, "recompute": "full"}

# Table 1 of the paper: layers, hidden size, heads, GPUs, tp, pp, sequences, TFLOP/s per GPU with the recomputed forward counted.
# The table names neither micro-batch sizes nor virtual stages.
TABLE_1 = ((24, 2304, 24, 32, 1, 1, 512, 137), (30, 3072, 32, 64, 2, 1, 512, 138), (36, 4096, 32, 128, 4, 1, 512, 142),
           (40, 6144, 48, 256, 8, 1, 1024, 135), (48, 8192, 64, 512, 8, 2, 1536, 138), (60, 10240, 80, 1024, 8, 4, 1792, 140),
           (80, 12288, 96, 1536, 8, 8, 2304, 148), (96, 16384, 128, 1920, 8, 16, 2160, 155), (105, 20480, 128, 2520, 8, 35, 2520, 163),
           (128, 25600, 160, 3072, 8, 64, 3072, 163))


@pytest.mark.parametrize(("precision", "kernel"), [("bf16", "auto"), ("fp16", "unfused")])
def test_gpt3_takes_about_32_seconds_a_step(precision: str, kernel: str) -> None:
    found = estimated({**GPT3, "workload": {**GPT3["workload"], "precision": precision, "attention_kernel": kernel}, "strategy": TP8_PP16})
    assert found.feasible and found.step_time_s == pytest.approx(32.0, rel=0.15)


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: f"{row[1]}")
def test_table_1(row: tuple[int, ...]) -> None:
    """FLOPs as the paper counts them: 96 B s L h^2 (1 + s / 6h + V / 16 L h), at the micro-batch size that serves each model best."""
    layers, hidden, heads, gpus, tp, pp, batch, published = row
    flops = 96 * batch * 2048 * layers * hidden**2 * (1 + 2048 / (6 * hidden) + 51_200 / (16 * layers * hidden))
    body = {"model": gpt(layers, hidden, heads), "cluster": nodes(gpus // 8, "A100-SXM4-80GB", 25.0),
            "workload": {"kind": "training", "seq_len": 2048, "global_batch_size": batch, "precision": "fp16", "attention_kernel": "unfused"}}
    dp = gpus // tp // pp
    steps = [estimated({**body, "strategy": {**TP8_PP16, "tp": tp, "pp": pp, "dp": dp, "micro_batch_size": b, "framework": "megatron"}})
             for b in (1, 2, 4, 8) if batch % (b * dp) == 0]
    best = min(found.step_time_s for found in steps if found.feasible and found.step_time_s is not None)
    assert flops / best / gpus / 1e12 == pytest.approx(published, rel=0.15)


def test_a_free_search_keeps_tensor_parallelism_inside_nodes() -> None:
    found = planned({**GPT3, "search": {"time_limit_s": 6.0, "alternatives": 0}})
    by_hand = estimated({**GPT3, "strategy": TP8_PP16})
    assert found.plan is not None and found.predicted is not None
    assert found.predicted.step_time_s is not None and by_hand.step_time_s is not None
    assert found.predicted.step_time_s <= by_hand.step_time_s
    assert all(stage.tp <= 8 for pipeline in found.plan.pipelines for stage in pipeline.stages)
