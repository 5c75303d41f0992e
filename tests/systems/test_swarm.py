"""SWARM (Ryabinin et al. 2023, arXiv 2301.11913): stages as pools of unequal, slow-linked peers."""
import itertools
import json

import numpy as np
import pytest
from pydantic import TypeAdapter

from solver.domain.request import PoolRequest
from solver.errors import InputError
from solver.importers.request import problem_of
from solver.search.formulation.pools import assign
from solver.search.pools.plan import PoolPlan, pools
from tests.systems.asked import Body, gpt, nodes

_REQUEST = TypeAdapter(PoolRequest)
SPEEDS = {"four": 1.0, "two": 0.5, "one": 0.25}


def pooled(body: Body) -> PoolPlan:
    """The answer of POST /v1/pools."""
    asked = _REQUEST.validate_json(json.dumps(body))
    return pools(problem_of(asked.model, asked.cluster, asked.workload), asked)


def request(**peers: int) -> Body:
    groups = [{"name": name, "nodes": n, "gpus_per_node": 1, "gpu": "V100-SXM2-16GB", "speed_factor": SPEEDS[name]} for name, n in peers.items()]
    return {"model": gpt(24, 2048, 16, 64), "cluster": {"node_groups": groups}, "stages": 3,
            "workload": {"kind": "training", "seq_len": 2048, "global_batch_size": 96, "precision": "fp16", "attention_kernel": "unfused"}}


def sums(found: PoolPlan) -> list[float]:
    return sorted(4 * sum(p.peers * SPEEDS[p.node_group] for p in pool.peers) for pool in found.pools)


def test_three_equal_stages_of_unequal_peers() -> None:
    found = pooled(request(four=1, two=2, one=4))
    assert found.outcome == "optimal" and sums(found) == [4, 4, 4]
    assert all(sum(p.peers * p.share for p in pool.peers) == pytest.approx(1.0) for pool in found.pools)


def test_without_the_fastest_peer() -> None:
    found = pooled(request(two=2, one=4))
    assert found.outcome == "optimal" and sums(found) == [2, 3, 3]


def test_shares_go_by_speed() -> None:
    found = pooled(request(two=1, one=2) | {"stages": 1})
    shares = {p.node_group: p.share for p in found.pools[0].peers}
    assert shares["two"] == pytest.approx(2 * shares["one"], rel=0.01)


# GPT-3 XL (24 layers, hidden 2048) on 8 V100, one per node: 96 micro-batches of one sequence, 8 MB each; Gb/s, latency in ms, seconds per step.
# The speed of the stack that was measured, plain PyTorch on V100, is known from the first row alone: 0.75 of what is priced here. The rest follows.
PUBLISHED = ((10, 0.1, 8.14), (5, 1, 8.79), (2, 5, 10.69), (1, 10, 15.64), (1, 50, 16.23))
STACK_SPEED = 0.75


@pytest.mark.parametrize(("gb_s", "latency_ms", "measured_s"), PUBLISHED)
def test_published_step_times(gb_s: float, latency_ms: float, measured_s: float) -> None:
    cluster = nodes(8, "V100-SXM2-16GB", gpus_per_node=1, speed_factor=STACK_SPEED)
    cluster["node_groups"][0]["network"] = {"bandwidth_gb_s": gb_s / 8, "latency_us": 1000 * latency_ms}
    found = pooled(request(four=1) | {"cluster": cluster, "stages": 8, "recompute": "full"})
    assert found.step_time_s == pytest.approx(measured_s, rel=0.15)


@pytest.mark.parametrize("seed", range(40))
def test_assignments_equal_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stages, peers = int(rng.integers(1, 4)), [int(n) for n in rng.integers(1, 4, size=int(rng.integers(1, 4)))]
    rates = (rng.integers(1, 9, size=(stages, len(peers))) / rng.integers(1, 4, size=(stages, 1))).tolist()
    best = None
    for rows in itertools.product(*(_splits(n, stages) for n in peers)):
        counts = list(zip(*rows, strict=True))
        if all(sum(row) for row in counts):
            totals = [sum(n * r for n, r in zip(row, of, strict=True)) for row, of in zip(counts, rates, strict=True)]
            worth = (round(min(totals), 6), -round(max(totals), 6))
            best = worth if best is None else max(best, worth)
    found = assign(rates, peers, 10.0)
    if best is None:
        assert found is None
        return
    assert found is not None and found.proved
    totals = [sum(n * r for n, r in zip(row, of, strict=True)) for row, of in zip(found.counts, rates, strict=True)]
    assert min(totals) == pytest.approx(best[0], rel=1e-5) and max(totals) == pytest.approx(-best[1], rel=1e-5)
    assert found.bound == pytest.approx(best[0], rel=1e-5)


def _splits(n: int, parts: int) -> list[tuple[int, ...]]:
    return [c for c in itertools.product(range(n + 1), repeat=parts) if sum(c) == n]


def test_more_stages_than_peers_are_refused() -> None:
    with pytest.raises(InputError, match="at most 7 stages"):
        pooled(request(four=1, two=2, one=4) | {"stages": 8})
