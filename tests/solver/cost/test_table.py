"""The table of many layouts has the numbers of one estimate each, digit for digit: legal layouts and such as break rules, stages alike and unlike."""
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver.cost.estimate import estimate
from solver.cost.table import price_table
from solver.domain.degrees import Strategy
from solver.domain.model import MoE
from solver.domain.problem import Problem
from tests.solver.cost.problems import SMALL, node_group, problem

DEEP = replace(SMALL, num_layers=12)
MIXED = replace(DEEP, moe=MoE(num_experts=8, top_k=2, expert_ffn_hidden_size=768, first_dense_layers=2), tied_embeddings=True)
WINDOWS = replace(DEEP, layer_types=("full_attention", "sliding_attention") * 6, sliding_window=128)
PROBLEMS: dict[str, Problem] = {
    "one group": problem(DEEP, global_batch_size=192),
    "experts": problem(MIXED, global_batch_size=192),
    "two kinds of layers": problem(WINDOWS, global_batch_size=384),
    "three groups": problem(DEEP, (node_group("a", nodes=1), node_group("b", "H100-SXM5-80GB", nodes=2), node_group("c", "T4", nodes=1)),
                            global_batch_size=96),
    "little memory": replace(problem(replace(DEEP, hidden_size=4096, ffn_hidden_size=14336), (node_group("a", "T4"),), global_batch_size=192),
                             memory_margin=0.3),
}


def strategies(seed: int, count: int) -> list[Strategy]:
    draw = random.Random(seed)

    def one() -> Strategy:
        pp, virtual = draw.choice([1, 2, 3, 4, 6, 12]), draw.choice([1, 1, 2, 3])
        fields: dict[str, Any] = {"schedule": "interleaved" if virtual > 1 else draw.choice(["1f1b", "gpipe"])}
        if draw.random() < 0.1:
            fields["schedule"] = draw.choice(["1f1b", "interleaved", "zb-h1", "slimpipe"])
        if draw.random() < 0.3 and pp > 1:
            cuts = sorted(draw.sample(range(1, 12), pp - 1))
            fields["layers_per_stage"] = tuple(b - a for a, b in zip([0, *cuts], [*cuts, 12], strict=True))
        return Strategy(tp=draw.choice([1, 2, 4, 5, 8]), pp=pp, dp=draw.choice([1, 2, 3, 4]), cp=draw.choice([1, 1, 2]), ep=draw.choice([1, 1, 2, 4]),
                        virtual_stages=virtual, micro_batch_size=draw.choice([1, 2, 4]), zero_stage=draw.choice([0, 1, 2, 3]),
                        sequence_parallel=draw.random() < 0.5, recompute=draw.choice(["none", "selective", "partial", "full"]),
                        vocabulary_parallel_loss=draw.random() < 0.8, framework=draw.choice([None, "megatron", "fsdp"]),
                        shard_group=draw.choice([None, None, None, 2]), **fields)

    return [one() for _ in range(count)]


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_row_is_the_same_alone_and_in_the_table(name: str) -> None:
    of, given = PROBLEMS[name], strategies(len(name), 300)
    table = price_table(of, given)
    legal = 0
    for row, s in enumerate(given):
        alone = estimate(of, s)
        legal += alone.feasible
        peak, capacity = (None, None) if alone.memory is None else (alone.memory.peak_gib, alone.memory.capacity_gib)
        found = [None if np.isnan(x[row]) else float(x[row]) for x in (table.step_time_s, table.peak_gib, table.capacity_gib)]
        assert found == [alone.step_time_s, peak, capacity], s
        assert (bool(table.feasible[row]), str(table.risk[row])) == (alone.feasible, alone.risk or "none"), s
        assert bool(table.fits_memory[row]) == bool(alone.fits_memory), s
    assert 0 < legal < len(given)


def test_no_layouts_make_an_empty_table() -> None:
    assert len(price_table(PROBLEMS["one group"], []).step_time_s) == 0
