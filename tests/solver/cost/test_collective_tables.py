"""Collective curves against the tables that they were fitted to, and how times behave over sizes, ranks and placements."""
import csv
from dataclasses import replace
from statistics import fmean

import pytest

from benchmarks.fits.collectives import Row, curve_of, fits, measured, predicted_s
from benchmarks.fits.tables import COMMITTED
from solver.catalog.collectives import OPERATIONS, collectives
from solver.catalog.efficiency import efficiency
from solver.cost.collectives import (
    BUCKET_BYTES,
    FanOut,
    Level,
    Path,
    all_gather_s,
    all_reduce_s,
    all_reduce_slope,
    all_to_all_s,
    reduce_scatter_s,
    ring_pass_s,
    scattered_all_reduce_s,
    switch_all_reduce_s,
)
from solver.cost.fabric import path_in_group, paths
from solver.domain.cluster import ClusterSpec, LinkSpeed, NodeGroup, NodeGroupSpec
from solver.importers.clusters import cluster_of

MIB = 2**20
CLASSES = dict(collectives().classes)
FITTED = list(fits())
ROWS = measured()
ALONE = replace(efficiency(), communication=replace(efficiency().communication, network_share=1.0, bus_share=1.0))   # as the tables were measured
ONE_WAY = (all_gather_s, reduce_scatter_s, all_to_all_s, ring_pass_s)


def group(gpu: str, nodes: int = 1, network: float | None = None, **more: object) -> NodeGroup:
    speed = None if network is None else LinkSpeed(bandwidth_gb_s=network)
    spec = NodeGroupSpec(name="g", nodes=nodes, gpu=gpu, network=speed, **more)  # type: ignore[arg-type]
    return cluster_of(ClusterSpec(node_groups=(spec,)))[0].group("g")


def path(gpu: str, ranks: int, stride: int = 1, **of: object) -> Path:
    return path_in_group(ALONE, group(gpu, **of), ranks, stride)  # type: ignore[arg-type]


def errors(rows: list[Row]) -> list[float]:
    return [abs(predicted_s(row, CLASSES) / row.seconds - 1.0) for row in rows]


@pytest.mark.parametrize(("name", "operation", "figures"), FITTED, ids=[f"{name}-{operation}" for name, operation, _ in FITTED])
def test_the_catalogue_holds_what_the_fit_finds_and_its_error(name, operation, figures):
    """The committed tables give the committed figures, and the stated error is that of the shipped curve."""
    shipped, found = getattr(CLASSES[name], operation), curve_of(figures)
    for field in ("base_s", "hop", "fill_s", "share", "few_ranks", "crowding"):
        assert getattr(shipped, field) == pytest.approx(getattr(found, field), rel=0.02, abs=1e-9), field
    mine = errors([row for row in ROWS if row.fitted_class == name and row.curve == operation])
    assert fmean(mine) == pytest.approx(figures["error"], rel=0.05, abs=0.002)
    assert max(mine) == pytest.approx(figures["worst"], rel=0.05, abs=0.005)


def test_messages_of_training_size_on_switched_nodes_are_within_a_tenth():
    for name in ("nvswitch_ampere", "nvswitch_hopper", "nvswitch_blackwell"):
        for operation in OPERATIONS[:4]:
            mine = errors([row for row in ROWS if row.fitted_class == name and row.curve == operation and row.size_bytes >= MIB])
            assert fmean(mine) < 0.1, (name, operation)


def test_small_messages_are_not_faster_than_the_best_kernel_written_for_them():
    """Inference kernels that reduce in one step bound what a general library needs."""
    gpus = {"a100_sxm": "A100-SXM4-80GB", "h100_sxm": "H100-SXM5-80GB", "b200_sxm": "B200-SXM6-180GB"}
    best: dict[tuple[str, int, int], float] = {}
    with (COMMITTED / "custom_allreduce.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["gpu"], int(row["num_gpus"]), 2 * int(row["elements"]))
            if key[0] in gpus and key[2] <= MIB // 4:
                best[key] = min(best.get(key, 1.0), float(row["latency_ms"]) / 1e3)
    assert len(best) > 20
    for (gpu, ranks, size), seconds in best.items():
        assert all_reduce_s(path(gpus[gpu], ranks), size) > seconds


@pytest.mark.parametrize("name", sorted(CLASSES))
@pytest.mark.parametrize("ranks", [2, 3, 8, 72])
def test_time_grows_with_bytes(name, ranks):
    inner, outer = (Level(ranks=n, latency_s=4e-6, bandwidth_bytes_s=100e9, link=CLASSES[name]) for n in (ranks, 4))
    for operation in (all_reduce_s, scattered_all_reduce_s, *ONE_WAY):
        for levels in ((inner,), (inner, outer)):
            times = [operation(levels, float(2**k)) for k in range(8, 34)]
            assert all(a < b for a, b in zip(times, times[1:], strict=False)), operation.__name__


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"mesh"}))
@pytest.mark.parametrize("size", [2.0**11, 2.0**20, 2.0**29])
def test_time_grows_with_ranks(name, size):
    """Reduction inside the switch apart: it moves less per rank the more there are. On a mesh more GPUs use more links."""
    link = replace(CLASSES[name], switch_all_reduce=None)
    for operation in (all_reduce_s, *ONE_WAY):
        times = [operation((Level(ranks=n, latency_s=4e-6, bandwidth_bytes_s=100e9, link=link),), size) for n in (2, 3, 4, 6, 8, 16, 36, 72)]
        assert all(a <= b * (1.0 + 1e-9) for a, b in zip(times, times[1:], strict=False)), operation.__name__


def test_all_reduce_is_bound_by_bandwidth_where_all_gather_is_by_latency():
    """8 H100, 2 MiB: the wire is most of neither alone, but of the all-reduce more."""
    node = path("H100-SXM5-80GB", 8)
    reduce, gather = ((op(node, 2.0 * MIB) - op(node, 0.0)) / op(node, 2.0 * MIB) for op in (all_reduce_s, all_gather_s))
    assert reduce > gather
    assert all_reduce_s(path("A100-SXM4-80GB", 8), 512.0 * MIB) == pytest.approx(2 * all_gather_s(path("A100-SXM4-80GB", 8), 512.0 * MIB), rel=0.15)


def test_the_switch_reduces_where_it_pays():
    """Hopper and Blackwell, 8 GPUs, large messages: a quarter faster than any ring; never for two GPUs, never on Ampere."""
    for gpu in ("H100-SXM5-80GB", "B200-SXM6-180GB"):
        node = path(gpu, 8)
        ring = all_reduce_s((replace(node[0], link=replace(node[0].link, switch_all_reduce=None)),), 512.0 * MIB)
        assert all_reduce_s(node, 512.0 * MIB) == switch_all_reduce_s(node[0], 512.0 * MIB) < ring
        pair = path(gpu, 2)
        assert all_reduce_s(pair, 512.0 * MIB) < switch_all_reduce_s(pair[0], 512.0 * MIB)
    assert switch_all_reduce_s(path("A100-SXM4-80GB", 8)[0], 1.0) == float("inf")


def test_a_tree_between_two_nodes_beats_the_ring_and_between_four_does_not():
    two, four = (path("A100-SXM4-80GB", 8 * n, nodes=n) for n in (2, 4))
    assert all_reduce_s(two, 512.0 * MIB) < 0.8 * scattered_all_reduce_s(two, 512.0 * MIB)
    assert all_reduce_s(four, 512.0 * MIB) == pytest.approx(scattered_all_reduce_s(four, 512.0 * MIB), rel=0.1)


def test_one_port_for_a_node_is_an_eighth_of_one_for_every_gpu():
    rails, shared = (path("A100-SXM4-80GB", 32, nodes=4, network=speed) for speed in (25.0, 25.0 / 8))
    assert scattered_all_reduce_s(shared, 2.0**30) > 7 * scattered_all_reduce_s(rails, 2.0**30)


def test_a_stated_network_is_what_each_gpu_sends_out_of_its_node():
    """One rank a node, 1 GiB, 4 nodes: 2 (4 - 1) / 4 S over 25 GB/s, at the achieved shares."""
    level = path("A100-SXM4-80GB", 4, stride=8, nodes=4, network=25.0)
    share = level[0].link.all_gather.share
    assert scattered_all_reduce_s(level, 2.0**30) == pytest.approx(1.5 * 2**30 / (25e9 * share), rel=0.1)


def test_a_group_link_and_the_network_of_a_group_are_the_same_ports():
    """4 ranks of one GPU a node, two in each of two groups: one ring, 2 (4 - 1) / 4 S through every port, as in one group of 4 nodes."""
    specs = tuple(NodeGroupSpec(name=name, nodes=4, gpus_per_node=1, gpu="A100-SXM4-80GB", network=LinkSpeed(bandwidth_gb_s=25.0)) for name in "ab")
    cluster = cluster_of(ClusterSpec(node_groups=specs))[0]
    across, alone = (paths(efficiency(), cluster, names, 4, 1)[0] for names in (("a", "b"), ("a",)))
    assert scattered_all_reduce_s(across, 2.0**28) == pytest.approx(scattered_all_reduce_s(alone, 2.0**28))


def test_nodes_without_peer_access_are_slow_and_slower_the_more_gpus():
    slow = [all_reduce_s(path("L40S", n), 64.0 * MIB) for n in (2, 4, 8)]
    assert slow[1] > 4 * slow[0] and slow[2] > 3 * slow[1]
    assert slow[2] > 5 * all_reduce_s(path("RTX-PRO-6000-Server", 8), 64.0 * MIB)


@pytest.mark.parametrize(("gpu", "topology"), [("A100-PCIE-80GB", "a100_pairwise_nvlink"), ("H100-PCIE-80GB", "h100_pairwise_nvlink")])
def test_pairs_with_bridges_reduce_over_the_bus(gpu, topology):
    """Not fitted: four GPUs in two bridged pairs, from 4 MiB on."""
    with (COMMITTED / "vidur_collectives.csv").open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["topology"] == topology and r["op"] == "all_reduce" and r["num_gpus"] == "4"]
    large = [(float(r["size_raw"]), float(r["latency_ms"]) / 1e3) for r in rows if float(r["size_raw"]) >= 4 * MIB]
    assert large and all(all_reduce_s(path(gpu, 4), size) == pytest.approx(seconds, rel=0.35) for size, seconds in large)


def test_experts_of_a_rack_exchange_faster_than_experts_of_eight_nodes():
    """64 ranks: inside one NVL72, and over 8 nodes of H100, where each token goes once to every node or once to every expert."""
    size = 64.0 * MIB
    rack, nodes = path("GB200-186GB", 64, nodes=18), path("H100-SXM5-80GB", 64, nodes=8)
    assert len(rack) == 1 and len(nodes) == 2
    assert all_to_all_s(nodes, size) > 8 * all_to_all_s(rack, size)
    assert all_to_all_s(rack, size) < all_to_all_s(nodes, size, fan_out=FanOut(copies=8)) < all_to_all_s(nodes, size)


@pytest.mark.parametrize("levels", [path("H100-SXM5-80GB", 8), path("A100-SXM4-80GB", 64, nodes=8), path("T4", 16, nodes=4)])
def test_the_affine_time_is_that_of_buckets(levels):
    constant, slope = all_reduce_slope(levels)
    assert constant == scattered_all_reduce_s(levels, 0.0)
    assert constant + slope * BUCKET_BYTES == pytest.approx(scattered_all_reduce_s(levels, BUCKET_BYTES))
    for buckets in (4.0, 32.0):
        assert 1.0 <= (constant + slope * BUCKET_BYTES * buckets) / scattered_all_reduce_s(levels, BUCKET_BYTES * buckets) < 1.25
