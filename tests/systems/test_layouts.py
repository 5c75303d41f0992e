"""Efficient parallelization layouts (Hagemann et al. 2023, arXiv 2311.05610): what its recommendations are, on the model itself.

Its measured layouts are judged by `python -m tests.accuracy.layouts RUNS`; they may not be redistributed.
"""
from functools import cache
from typing import Any

import pytest

from solver.search.result import SearchResult
from tests.systems.asked import Body, estimated, nodes, planned

# Layers, hidden size, heads, FFN width, nodes of 8 A100.
SHAPES = {"13B": (40, 5120, 40, 13824, 8), "30B": (60, 6656, 52, 17920, 32), "65B": (80, 8192, 64, 22016, 16)}


def request(name: str, seq_len: int = 2048) -> Body:
    layers, hidden, heads, ffn, count = SHAPES[name]
    model = {"architecture": {"num_layers": layers, "hidden_size": hidden, "ffn_hidden_size": ffn, "num_attention_heads": heads,
                              "vocab_size": 128_000}}
    workload = {"kind": "training", "seq_len": seq_len, "global_batch_size": 2048 * 2048 // seq_len, "gradient_precision": "bf16"}
    return {"model": model, "cluster": nodes(count, "A100-SXM4-80GB"), "workload": workload}


@cache
def best(name: str, **allowed: Any) -> SearchResult:
    """The best layout of the study's space: tensor, pipeline and data parallelism, ZeRO-1, 1F1B."""
    space = {"launcher": "megatron", "memory_margin": 0.05, "schedules": ["1f1b"], "cp": [1], **{key: [value] for key, value in allowed.items()}}
    found = planned({**request(name), "constraints": space, "search": {"time_limit_s": 9.0, "alternatives": 0}})
    assert found.plan is not None and found.predicted is not None
    return found


def seconds(found: SearchResult) -> float:
    assert found.predicted is not None and found.predicted.step_time_s is not None
    return found.predicted.step_time_s


def split(found: SearchResult) -> int:
    """Over how many GPUs one copy of the model lies."""
    assert found.plan is not None
    return sum(stage.tp for stage in found.plan.pipelines[0].stages)


@pytest.mark.parametrize("name", SHAPES)
def test_micro_batches_of_one_sequence_first(name: str) -> None:
    """They are as good as any, and what leaves most memory: the model lies over no more GPUs, and nothing is recomputed."""
    any_size, one = best(name), best(name, micro_batch_size=1)
    assert seconds(one) < 1.08 * seconds(any_size) and split(one) <= split(any_size)
    assert one.plan is not None and {s.recompute for p in one.plan.pipelines for s in p.stages} == {"none"}


@pytest.mark.parametrize("name", SHAPES)
def test_recompute_last(name: str) -> None:
    free, recomputed = best(name), best(name, recompute="full")
    assert free.plan is not None and {s.recompute for p in free.plan.pipelines for s in p.stages} == {"none"}
    assert seconds(recomputed) > 1.15 * seconds(free)


@pytest.mark.parametrize("name", ["13B", "65B"])
def test_pipelines_before_wide_tensor_parallelism(name: str) -> None:
    """The model over eight GPUs: the narrower the tensors are cut, the faster."""
    dp = SHAPES[name][4]
    times = [estimated({**request(name), "strategy": {"tp": tp, "pp": 8 // tp, "dp": dp, "sequence_parallel": True}}).step_time_s or 0.0
             for tp in (2, 4, 8)]
    assert times == sorted(times) and times[-1] > 1.1 * times[0]


def test_sequence_parallelism_for_large_models_and_long_sequences() -> None:
    """Never slower, and what it frees grows with the model and the sequence: there it decides whether a narrow cut fits."""
    freed = []
    for name, seq_len in (("13B", 2048), ("30B", 8192), ("65B", 8192)):
        layout = {"tp": 2, "pp": 4, "dp": SHAPES[name][4], "micro_batch_size": 1}
        off, on = (estimated({**request(name, seq_len), "strategy": {**layout, "sequence_parallel": sp}}) for sp in (False, True))
        assert off.memory is not None and on.memory is not None
        assert (on.step_time_s or 0.0) <= (off.step_time_s or 0.0)
        freed.append(off.memory.peak_gib - on.memory.peak_gib)
        if name == "30B":
            assert off.risk == "over" and on.risk == "safe"
    assert freed == sorted(freed) and freed[-1] > 4 * freed[0]
