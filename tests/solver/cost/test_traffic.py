"""Published traffic volumes."""
import pytest

from solver.cost.traffic import ring_elements, tensor_all_reduce_bytes, ulysses_elements


def test_tensor_parallel_traffic_of_a_gpt3_layer():
    assert tensor_all_reduce_bytes(1, 2048, 12288, 8) / 1e6 == pytest.approx(352, abs=0.5)


def test_ulysses_volumes():
    """8 A / N with as many KV heads as heads; 4 A / N + 4 A / (N a / k) with grouped KV heads; replicated KV heads pay."""
    a = 1 * 32768 * 4096.0
    assert ulysses_elements(a, 8, 32, 32) == pytest.approx(8 * a / 8)
    assert ulysses_elements(a, 8, 32, 8) == pytest.approx(4 * a / 8 + 4 * a / (8 * 4))
    assert ulysses_elements(a, 8, 32, 4) == pytest.approx(4 * a / 8 + 4 * a / (8 * 8) * 2)


def test_ring_volume_does_not_shrink_with_the_degree():
    a = 1 * 32768 * 4096.0
    assert ring_elements(a, 32, 8) == pytest.approx(6 * a / 4)
