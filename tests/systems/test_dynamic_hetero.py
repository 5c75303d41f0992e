"""Unequal nodes and a network that changes (arXiv 2506.02787): layers by speed, and another layout once a slow link makes the old one the dearer."""
import pytest

from solver.domain.plan import Plan
from solver.search.replan.answer import Replan
from solver.search.replan.decide import Terms, decide
from tests.systems.asked import Body, estimated, gpt, planned, problem_in

FREE_GB_S, SLOW_GB_S = 1e6, 0.25


def request(network_gb_s: float) -> Body:
    """Two nodes of one GPU, of speed 2 and 1; two stages of one pipeline; 24 layers and next to no vocabulary."""
    groups = [{"name": name, "nodes": 1, "gpus_per_node": 1, "gpu": "A100-SXM4-80GB", "speed_factor": speed,
               "network": {"bandwidth_gb_s": network_gb_s, "latency_us": 0}} for name, speed in (("fast", 1.0), ("slow", 0.5))]
    return {"model": gpt(24, 2048, 16, 64), "cluster": {"node_groups": groups},
            "workload": {"kind": "training", "seq_len": 2048, "global_batch_size": 256},
            "constraints": {"micro_batch_size": [1], "dp": [1], "recompute": ["none"], "schedules": ["1f1b"]}, "search": {"time_limit_s": 60}}


@pytest.fixture(scope="module")
def old() -> Plan:
    found = planned(request(FREE_GB_S))
    assert found.outcome == "optimal" and found.plan is not None
    return found.plan


def layers_by_group(plan: Plan) -> dict[str, int]:
    return {s.devices[0].node_group: s.num_layers for s in plan.pipelines[0].stages}


def replanned(network_gb_s: float, old: Plan, steps: int, restart_s: float = 0.0) -> Replan:
    body = request(network_gb_s)
    found = planned(body)
    assert found.outcome == "optimal" and found.plan is not None
    return decide(problem_in(body), old, (found.plan, *(a.plan for a in found.alternatives)), found.bound_s,
                  Terms(remaining_steps=steps, restart_s=restart_s))


def test_layers_go_by_speed(old: Plan) -> None:
    assert layers_by_group(old) == {"fast": 16, "slow": 8}


def test_the_bottleneck_is_half_again_as_fast_as_that_of_equal_halves(old: Plan) -> None:
    """With many micro-batches the step is the bottleneck's: 8 slow layers against 12."""
    body = {k: v for k, v in request(FREE_GB_S).items() if k not in ("constraints", "search")}
    best, halves = (estimated({**body, "strategy": {"pp": 2, "micro_batch_size": 1, "layers_per_stage": sizes}}) for sizes in ([16, 8], [12, 12]))
    mirrored = estimated({**body, "strategy": {"pp": 2, "micro_batch_size": 1, "layers_per_stage": [8, 16]}})
    assert best.step_time_s is not None and halves.step_time_s is not None and mirrored.step_time_s is not None
    assert halves.step_time_s / best.step_time_s == pytest.approx(1.5, rel=0.03)
    assert mirrored.step_time_s > 1.9 * best.step_time_s


def test_a_slow_link_moves_the_layout_and_shows_both_costs(old: Plan) -> None:
    found = replanned(SLOW_GB_S, old, steps=1_000)
    assert found.decision == "move" and found.plan is not None and found.predicted is not None and found.move is not None
    assert layers_by_group(found.plan) == {"fast": 24}
    assert found.stay.step_time_s is not None and found.predicted.step_time_s is not None
    assert found.stay.step_time_s > 1.5 * found.predicted.step_time_s
    assert found.gain_s == pytest.approx(1_000 * (found.stay.step_time_s - found.predicted.step_time_s))
    assert found.move.traffic[0].between == ("slow", "fast") and found.move.moved_bytes > 0
    assert found.cost_s == found.move.seconds < found.gain_s


def test_few_steps_are_not_worth_a_move(old: Plan) -> None:
    pays = replanned(SLOW_GB_S, old, steps=1_000).break_even_steps
    assert pays is not None and 1 < pays < 10
    assert replanned(SLOW_GB_S, old, steps=0).decision == "stay"
    assert replanned(SLOW_GB_S, old, steps=100, restart_s=1e6).decision == "stay"


def test_the_same_network_gives_no_reason_to_move(old: Plan) -> None:
    found = replanned(FREE_GB_S, old, steps=1_000_000)
    assert found.decision == "stay" and found.plan == old and found.gap == pytest.approx(0.0, abs=1e-9)
