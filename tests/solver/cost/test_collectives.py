"""Alpha-beta formulas, alone and over levels."""
import pytest

from solver.catalog.collectives import LinkClass
from solver.cost.collectives import (
    FanOut,
    Level,
    all_gather_s,
    all_reduce_s,
    all_reduce_slope,
    all_to_all_s,
    reduce_scatter_s,
    ring_all_reduce_s,
    ring_pass_s,
    tree_all_reduce_s,
)

NODE = Level(ranks=8, latency_s=2e-6, bandwidth_bytes_s=300e9)
NETWORK = Level(ranks=4, latency_s=5e-6, bandwidth_bytes_s=25e9)


def test_ring_all_reduce_by_hand():
    assert ring_all_reduce_s(8, 1e9, 2e-6, 100e9) == pytest.approx(2 * 7 * 2e-6 + 2 * 7 / 8 * 1e9 / 100e9)


def test_tree_wins_for_small_messages_on_many_ranks_and_ring_for_large():
    assert tree_all_reduce_s(256, 1e3, 5e-6, 25e9) < ring_all_reduce_s(256, 1e3, 5e-6, 25e9)
    assert ring_all_reduce_s(8, 1e9, 5e-6, 25e9) < tree_all_reduce_s(8, 1e9, 5e-6, 25e9)


def test_all_reduce_over_nodes_uses_every_gpus_way_out_and_all_levels_at_once():
    size, ranks = 1e9, 32
    expected = 2 * 7 * 2e-6 + 2 * 3 * 5e-6 + 2 * (ranks - 1) / ranks * size / 8 / 25e9
    assert all_reduce_s((NODE, NETWORK), size) == pytest.approx(expected)


def test_a_ring_that_shares_one_way_out_of_the_block_sends_everything_over_it():
    """Pairs with NVLink bridges on a PCIe bus: 2 (4 - 1) / 4 S over the bus."""
    pair = Level(ranks=2, latency_s=0.0, bandwidth_bytes_s=300e9)
    bus = Level(ranks=2, latency_s=0.0, bandwidth_bytes_s=25e9, link=LinkClass(rails=False))
    assert all_reduce_s((pair, bus), 1e9) == pytest.approx(1.5 * 1e9 / 25e9)


def test_gather_and_scatter_are_half_a_ring_all_reduce():
    assert all_gather_s((NODE,), 1e8) == reduce_scatter_s((NODE,), 1e8) == pytest.approx(all_reduce_s((NODE,), 1e8) / 2)


def test_one_rank_costs_nothing():
    assert all_reduce_s((), 1e9) == 0.0
    assert all_to_all_s((), 1e9) == 0.0
    assert ring_pass_s((), 1e9) == 0.0


def test_all_to_all_on_one_level_by_hand():
    assert all_to_all_s((NODE,), 8e6) == pytest.approx(7 * 2e-6 + 7 / 8 * 8e6 / 300e9)


def test_all_to_all_over_nodes_is_bound_by_the_network():
    seconds = all_to_all_s((NODE, NETWORK), 8e8)
    assert seconds == pytest.approx(24 / 32 * 8e8 / 25e9, rel=1e-2)


def test_one_copy_per_node_spares_the_network():
    """8 copies over 2 nodes: 2 (1 - 2^-8) nodes are met, about a quarter of the bytes."""
    path = (NODE, Level(ranks=2, latency_s=0.0, bandwidth_bytes_s=25e9))
    whole, once = all_to_all_s(path, 8e8), all_to_all_s(path, 8e8, fan_out=FanOut(copies=8))
    assert once == pytest.approx(whole * 2 * (1 - 0.5**8) / 8, rel=1e-2)


def test_blocks_that_the_copies_of_a_token_meet():
    assert FanOut(copies=8).met(8.0) == pytest.approx(8 * (1 - (7 / 8) ** 8))
    assert FanOut(copies=8, groups=8, kept=4).met(8.0) == pytest.approx(4 * (1 - (3 / 4) ** 8))       # DeepSeek-V3: four nodes of eight
    assert FanOut(copies=8, groups=8, kept=4).met(16.0) == pytest.approx(8 * (1 - (7 / 8) ** 8))      # every group over two blocks
    assert 1.0 < FanOut(copies=8, groups=8, kept=4).met(2.0) < FanOut(copies=8).met(2.0)
    assert FanOut(copies=8, groups=8, kept=1).met(2.0) == pytest.approx(1.0)


def test_slope_is_the_ring_for_large_messages():
    constant, slope = all_reduce_slope((NODE, NETWORK))
    assert constant + slope * 1e10 == pytest.approx(all_reduce_s((NODE, NETWORK), 1e10), rel=1e-3)
