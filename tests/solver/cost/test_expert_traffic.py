"""Dispatch and combine of routed experts."""
from dataclasses import replace

import pytest

from solver.cost.expert_traffic import expert_s, shown_s
from solver.cost.fabric import path_in_group
from solver.cost.setting import setting
from solver.cost.share import Share
from solver.cost.unit import hiding_rounds
from solver.cost.units import unit_costs
from solver.domain.model import Architecture, MoE
from tests.solver.cost.problems import node_group, problem, unit

MODEL = Architecture(num_layers=4, hidden_size=7168, ffn_hidden_size=18432, num_attention_heads=64, num_kv_heads=8, vocab_size=32000,
                     moe=MoE(num_experts=256, top_k=8, expert_ffn_hidden_size=2048))
SHARED = setting(problem(MODEL, groups=(node_group(gpu="H100-SXM5-80GB", nodes=8, link=450.0, network=50.0),), seq_len=4096))
LAYER = SHARED.layers[0]
MEGATRON, PLAIN = SHARED.constants.stack("megatron"), SHARED.constants.stack("default")


def path_of(size, stride):
    return path_in_group(SHARED.constants, SHARED.machines["g"].group, size, stride)


def share(**changes):
    whole = Share(sequences=1.0, seq_len=4096, tp=1, cp=1, ep=64, etp=1, sequence_parallel=False, kernel="flash_2", eager_norm=False)
    return replace(whole, **changes)


def test_once_per_node_the_network_carries_a_copy_for_every_node_that_is_met():
    """Eight of 256 experts over eight nodes meet 8 (1 - (7/8)^8) = 5.25 nodes, seven eighths of them elsewhere."""
    seconds = expert_s(SHARED, MEGATRON, path_of, LAYER, share())
    level = path_of(64, 1)[-1]
    sent = 4096 * 7168 * 2.0 * 8 * (1 - (7 / 8) ** 8) * 7 / 8
    achieved = level.bandwidth_bytes_s * level.link.all_to_all.share * SHARED.constants.moe.network_gain
    assert seconds == pytest.approx(2 * sent / achieved, rel=0.15)
    assert 43e9 < achieved < 50e9                          # DeepEP: 43 to 58 GB/s of 50
    assert expert_s(SHARED, PLAIN, path_of, LAYER, share()) > 1.4 * seconds


def test_a_router_that_keeps_to_few_groups_of_experts_sends_less_between_nodes():
    moe = replace(MODEL.moe, num_groups=8, top_groups=4)
    limited = setting(problem(replace(MODEL, moe=moe), groups=(SHARED.machines["g"].group,), seq_len=4096))
    assert expert_s(limited, MEGATRON, path_of, LAYER, share()) == pytest.approx(
        expert_s(SHARED, MEGATRON, path_of, LAYER, share()) * 4 * (1 - (3 / 4) ** 8) / (8 * (1 - (7 / 8) ** 8)), rel=0.02)
    assert expert_s(limited, PLAIN, path_of, LAYER, share()) == expert_s(SHARED, PLAIN, path_of, LAYER, share())


def test_inside_a_node_and_without_expert_parallelism():
    inside = expert_s(SHARED, MEGATRON, path_of, LAYER, share(ep=8))
    assert inside < 0.25 * expert_s(SHARED, MEGATRON, path_of, LAYER, share())
    assert expert_s(SHARED, MEGATRON, path_of, LAYER, share(ep=1)) == 0.0
    assert expert_s(SHARED, MEGATRON, path_of, LAYER, share(tp=2)) == pytest.approx(expert_s(SHARED, MEGATRON, path_of, LAYER, share()) / 2, rel=0.05)


def test_traffic_hides_between_nodes_with_virtual_stages_only():
    shown = [shown_s(SHARED, stack, path_of, share(ep=ep), virtual, 1.0, 10.0)
             for stack, ep, virtual in ((MEGATRON, 64, True), (MEGATRON, 64, False), (MEGATRON, 8, True), (PLAIN, 64, True))]
    assert shown[1:] == [1.0, 1.0, 1.0]
    assert shown[0] == pytest.approx(1.0 - MEGATRON.expert_overlap * (1.0 - SHARED.constants.communication.overlap_slowdown))


def test_no_more_hides_than_there_is_computation():
    assert shown_s(SHARED, MEGATRON, path_of, share(), True, 1.0, 0.0) == 1.0
    assert 1.0 > shown_s(SHARED, MEGATRON, path_of, share(), True, 1.0, 0.1) > 0.9


def test_layers_of_virtual_stages_are_shorter_and_parts_still_add_up():
    spec = unit(ep=64, replicas=64, framework="megatron")
    alone, merged = (unit_costs(SHARED.problem, replace(spec, hiding_rounds=rounds)).layers[LAYER] for rounds in (1.0, hiding_rounds(4, 4)))
    assert merged.forward_s < alone.forward_s and merged.backward_s < alone.backward_s
    for part in (alone, merged):
        of = part.parts
        assert of.compute_s + of.expert_comm_s == pytest.approx(part.forward_s + part.backward_s)
    assert merged.parts.compute_s == pytest.approx(alone.parts.compute_s)
