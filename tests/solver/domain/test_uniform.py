"""Layouts counted against the same layouts with every GPU named."""
import random
from dataclasses import replace

import pytest

from solver.domain.cluster import UnavailableGpu
from solver.domain.degrees import Strategy
from solver.domain.placement import expand
from solver.domain.reading import layout_of
from solver.domain.uniform import uniform_layout
from tests.solver.cost.problems import node_group, problem


@pytest.mark.parametrize("seed", range(60))
def test_counting_gives_what_naming_gives(seed: int) -> None:
    draw = random.Random(seed)
    groups = [node_group(name=f"g{i}", nodes=draw.choice((1, 2, 3)), gpus_per_node=draw.choice((2, 4, 8))) for i in range(draw.choice((1, 1, 2, 3)))]
    posed = problem(groups=tuple(groups), global_batch_size=draw.choice((16, 24, 30)))
    counted = 0
    for _ in range(40):
        pp = draw.choice((1, 2, 3, 4))
        v = draw.choice((1, 1, 2))
        strategy = Strategy(tp=draw.choice((1, 2, 4, 8)), pp=pp, dp=draw.choice((1, 2, 3, 4)), cp=draw.choice((1, 1, 2)), virtual_stages=v,
                            schedule="interleaved" if v > 1 else "1f1b", micro_batch_size=draw.choice((1, 2)))
        plan, reasons = expand(posed, strategy)
        found = uniform_layout(posed, strategy)
        if found is None:
            continue
        assert plan is not None
        layout, more = layout_of(posed, plan)
        assert found == (layout, reasons + more)
        counted += 1
    assert counted


def test_missing_gpus_are_left_to_naming() -> None:
    whole = problem(groups=(node_group(nodes=2),))
    group = replace(whole.cluster.node_groups[0], unavailable_gpus=(UnavailableGpu(node=0, gpu=3),))
    short = replace(whole, cluster=replace(whole.cluster, node_groups=(group,)))
    assert uniform_layout(whole, Strategy(tp=2, pp=1, dp=4)) is not None
    assert uniform_layout(short, Strategy(tp=2, pp=1, dp=4)) is None
