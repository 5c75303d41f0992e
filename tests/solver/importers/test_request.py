"""From a posted request to a problem: names, tiers and defaults resolved, faults gathered."""
import time
from typing import Any

import pytest

from solver.domain.cluster import ClusterSpec, FabricTier, GroupLink, InlineDevice, LinkSpeed, NodeGroup, NodeGroupSpec, UnavailableGpu
from solver.domain.model import Architecture
from solver.domain.problem import Problem
from solver.domain.request import ModelSpec
from solver.domain.workload import LengthBin, ServingWorkload, TrainingWorkload
from solver.errors import InputError, NotCovered, UnknownName
from solver.importers.request import problem_of

LLAMA = ModelSpec(preset="llama-3.1-8b")
TRAINING = TrainingWorkload(seq_len=4096, global_batch_size=64)


def group_spec(**changes: Any) -> NodeGroupSpec:
    """Two nodes of eight H100, with nothing else said."""
    return NodeGroupSpec(**{"name": "g", "nodes": 2, "gpus_per_node": 8, "gpu": "H100-SXM5-80GB"} | changes)


def problem(*groups: NodeGroupSpec, model: ModelSpec = LLAMA, links: tuple[GroupLink, ...] = (), seq_len: int = 4096) -> Problem:
    return problem_of(model, ClusterSpec(node_groups=groups, links=links), TrainingWorkload(seq_len=seq_len, global_batch_size=64))


def only_group(**changes: Any) -> NodeGroup:
    return problem(group_spec(**changes)).cluster.node_groups[0]


def shape(*tiers: FabricTier) -> list[tuple[str, int, float, float]]:
    return [(t.name, t.size, t.bandwidth_gb_s, t.latency_us) for t in tiers]


def assumed(found: Problem) -> dict[str, str]:
    return {a.pointer: a.message for a in found.assumptions}


def refused(kind: type[InputError], *groups: NodeGroupSpec, model: ModelSpec = LLAMA, workload: Any = TRAINING,
            links: tuple[GroupLink, ...] = ()) -> set[str]:
    with pytest.raises(InputError) as caught:
        problem_of(model, ClusterSpec(node_groups=groups or (group_spec(),), links=links), workload)
    assert type(caught.value) is kind
    assert all(f.legal for f in caught.value.faults)
    return {f.pointer for f in caught.value.faults}


def test_the_tiers_of_nvlink_nodes() -> None:
    assert shape(*only_group().tiers) == [("link", 8, 450.0, 4.0), ("network", 16, 50.0, 3.0)]


def test_a_bridge_joins_pairs_and_pcie_the_node() -> None:
    tiers = only_group(gpu="A100-PCIE-80GB").tiers
    assert shape(*tiers) == [("link", 2, 300.0, 1.9), ("pcie", 8, 31.5, 5.7), ("network", 16, 12.5, 3.0)]


def test_pcie_cards_have_no_link_tier() -> None:
    assert shape(*only_group(gpu="L40S").tiers) == [("pcie", 8, 31.5, 5.7), ("network", 16, 12.5, 3.0)]


def test_a_rack_wide_domain_spans_nodes() -> None:
    assert shape(*only_group(gpu="GB200-186GB", nodes=20, gpus_per_node=4).tiers)[0] == ("link", 72, 900.0, 4.0)
    assert shape(*only_group(gpu="GB200-186GB", nodes=2, gpus_per_node=4).tiers) == [("link", 8, 900.0, 4.0), ("network", 8, 50.0, 3.0)]


def test_half_a_node_has_half_a_domain_and_a_double_one_needs_pcie() -> None:
    assert shape(*only_group(gpus_per_node=4).tiers) == [("link", 4, 450.0, 4.0), ("network", 8, 50.0, 3.0)]
    assert [(t.name, t.size) for t in only_group(gpus_per_node=16).tiers] == [("link", 8), ("pcie", 16), ("network", 32)]


def test_one_gpu_per_node_has_only_the_network() -> None:
    assert [t.name for t in only_group(gpus_per_node=1).tiers] == ["network"]
    assert [t.name for t in only_group(gpus_per_node=1, intra_node=LinkSpeed(bandwidth_gb_s=300.0)).tiers] == ["network"]


def test_stated_speeds_replace_the_catalogue() -> None:
    tiers = only_group(intra_node=LinkSpeed(bandwidth_gb_s=300.0, latency_us=2.0), network=LinkSpeed(bandwidth_gb_s=25.0, latency_us=5.0)).tiers
    assert shape(*tiers) == [("intra_node", 8, 300.0, 2.0), ("network", 16, 25.0, 5.0)]


def test_latencies_that_are_not_stated_come_from_the_link_tables() -> None:
    found = problem(group_spec(intra_node=LinkSpeed(bandwidth_gb_s=300.0), network=LinkSpeed(bandwidth_gb_s=1.2)))
    assert [t.latency_us for t in found.cluster.node_groups[0].tiers] == [4.0, 30.0]
    notes = assumed(found)
    assert "nvswitch-h100" in notes["/cluster/node_groups/0/intra_node/latency_us"]
    assert "eth-10" in notes["/cluster/node_groups/0/network/latency_us"]


def test_everything_stated_leaves_nothing_to_assume() -> None:
    speed = LinkSpeed(bandwidth_gb_s=50.0, latency_us=5.0)
    assert problem(group_spec(network=speed, price_per_gpu_hour=2.0)).assumptions == ()


def test_defaults_are_assumptions() -> None:
    found = problem(group_spec(gpu="h100", gpus_per_node=None))
    group = found.cluster.node_groups[0]
    assert (group.gpus_per_node, group.price_per_gpu_hour, found.memory_margin) == (8, 2.95, 0.08)
    fields = ("gpu", "gpus_per_node", "network", "network/latency_us", "price_per_gpu_hour")
    assert set(assumed(found)) == {f"/cluster/node_groups/0/{p}" for p in fields}
    (family,) = [a for a in found.assumptions if a.pointer.endswith("/gpu")]
    assert family.alternatives == ("H100-PCIE-80GB", "H100-NVL-94GB")


def test_a_single_node_assumes_no_network() -> None:
    assert not [p for p in assumed(problem(group_spec(nodes=1))) if "network" in p]


def test_an_inline_device_replaces_figures_of_its_base() -> None:
    inline = InlineDevice(name="H100-96GB", based_on="h100", memory_gib=96.0, memory_bandwidth_gb_s=2400.0, power_w=500.0)
    found = problem(group_spec(gpu=inline))
    device = found.cluster.node_groups[0].device
    assert (device.name, device.based_on, device.memory_gib, device.memory_bandwidth_gb_s, device.power_w) == (
        "H100-96GB", "H100-SXM5-80GB", 96.0, 2400.0, 500.0)
    assert device.reported_memory_gib == pytest.approx(96 * 81559 / 81920)
    assert (device.bf16_tflops, device.arch) == (989.0, "hopper")
    assert "/cluster/node_groups/0/gpu/based_on" in assumed(found)


def test_an_inline_fabric_decides_the_tiers() -> None:
    slower = InlineDevice(name="x", based_on="H100-SXM5-80GB", link_gb_s=200.0, link_domain_gpus=4)
    assert shape(*only_group(gpu=slower).tiers)[:2] == [("link", 4, 200.0, 4.0), ("pcie", 8, 63.0, 5.7)]


def test_links_between_groups() -> None:
    a, b, c = group_spec(name="a", region="eu"), group_spec(name="b", region="us"), group_spec(name="c", region="us")
    found = problem(a, b, c, links=(GroupLink(between=("eu", "us"), total_bandwidth_gb_s=1.25), GroupLink(between=("b", "c"), bandwidth_gb_s=12.5)))
    assert [link.latency_us for link in found.cluster.links] == [30.0, 3.0]
    notes = assumed(found)
    assert "regions" in notes["/cluster/links/0/latency_us"] and "ib-edr-100" in notes["/cluster/links/1/latency_us"]
    assert "/cluster/links" not in notes
    assert "slower" in assumed(problem(a, b))["/cluster/links"]


def test_the_margin_is_taken_as_given() -> None:
    assert problem_of(LLAMA, ClusterSpec(node_groups=(group_spec(),)), TRAINING, memory_margin=0.0).memory_margin == 0.0


def test_equal_requests_have_equal_fingerprints() -> None:
    speed = LinkSpeed(bandwidth_gb_s=50.0, latency_us=3.0)
    assert problem(group_spec()).fingerprint() == problem(group_spec(gpu="NVIDIA-H100-80GB-HBM3", network=speed)).fingerprint()
    assert problem(group_spec()).fingerprint() != problem(group_spec(nodes=3)).fingerprint()


def test_large_clusters_resolve_in_milliseconds() -> None:
    hostnames = tuple(f"n{i}" for i in range(10_000))
    gone = (UnavailableGpu(node=9_999, gpu=9),)
    spec = ClusterSpec(node_groups=(group_spec(nodes=10_000, gpus_per_node=10, hostnames=hostnames, unavailable_gpus=gone),
                                    group_spec(name="rack", nodes=5_000, gpus_per_node=4, gpu="gb200")))
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        found = problem_of(LLAMA, spec, TRAINING)
        seconds.append(time.perf_counter() - started)
        assert found.cluster.gpus == 119_999
    assert min(seconds) < 0.02


def test_all_faults_are_reported_at_once() -> None:
    pointers = refused(InputError, group_spec(name="a", gpu="H100-SMX"), group_spec(name="a", hostnames=("n0",)),
                       group_spec(name="c", gpu=InlineDevice(name="x", based_on="nothing-like-it")),
                       group_spec(name="d", unavailable_gpus=(UnavailableGpu(node=2, gpu=0),)),
                       model=ModelSpec(hf_config={"model_type": "llama", "hidden_size": -1, "num_hidden_layers": 2}),
                       workload=TrainingWorkload(seq_len=4096, global_batch_size=64, training="lora"),
                       links=(GroupLink(between=("a", "elsewhere"), bandwidth_gb_s=1.0, latency_us=1.0),))
    assert pointers == {"/workload/training", "/model/hf_config/hidden_size", "/cluster/node_groups/0/gpu", "/cluster/node_groups/1/hostnames",
                        "/cluster/node_groups/2/gpu/based_on", "/cluster/node_groups/3/unavailable_gpus/0", "/cluster/node_groups/1/name",
                        "/cluster/links/0/between/1"}


def test_names_alone_are_an_unknown_name() -> None:
    assert refused(UnknownName, group_spec(gpu="Z9"), model=ModelSpec(preset="llama-9")) == {"/cluster/node_groups/0/gpu", "/model/preset"}


def test_more_gpus_than_a_plan_can_name() -> None:
    assert refused(InputError, group_spec(nodes=100_000, gpus_per_node=1024)) == {"/cluster/node_groups"}


@pytest.mark.parametrize(("workload", "pointer"), [
    (ServingWorkload(kind="serving", input_len=1, output_len=1, concurrency=1), "/workload/kind"),
    (TrainingWorkload(seq_len=8, global_batch_size=1, training="lora"), "/workload/training"),
    (TrainingWorkload(seq_len=8, global_batch_size=1, sequence_length_histogram=(LengthBin(length=8, share=1.0),)),
     "/workload/sequence_length_histogram"),
])
def test_workloads_that_are_not_covered(workload: Any, pointer: str) -> None:
    assert refused(NotCovered, workload=workload) == {pointer}


def small(**changes: Any) -> ModelSpec:
    shape = {"num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 256, "num_attention_heads": 4, "vocab_size": 1000}
    return ModelSpec(architecture=Architecture(**shape | changes))


@pytest.mark.parametrize("kind", ["diffusion", "dlrm", "vision", "layers"])
def test_kinds_of_model_that_are_not_covered(kind: str) -> None:
    assert refused(NotCovered, model=small(kind=kind)) == {"/model/architecture/kind"}


@pytest.mark.parametrize("kind", ["linear_attention", "mamba", "chunked_attention"])
def test_kinds_of_layer_that_are_not_covered(kind: str) -> None:
    (pointer,) = refused(NotCovered, model=small(layer_types=("full_attention", kind)))
    assert pointer.startswith("/model/architecture/layer_types")


def test_windows_that_hold_whole_sequences_are_full_attention() -> None:
    chunked = small(layer_types=("full_attention", "chunked_attention"), sliding_window=8192)
    found = problem(group_spec(), model=chunked, seq_len=8192)
    assert found.model.layer_types is None and found.model.sliding_window is None
    assert "8192" in assumed(found)["/model/architecture"]
    assert refused(NotCovered, model=chunked, workload=TrainingWorkload(seq_len=8193, global_batch_size=1)) == {"/model/architecture/layer_types"}
    sliding = small(layer_types=("mlp_only", "sliding_attention"), sliding_window=4096)
    assert problem(group_spec(), model=sliding, seq_len=4096).model.layer_types == ("mlp_only", "full_attention")
    assert problem(group_spec(), model=sliding, seq_len=8192).model.layer_types == ("mlp_only", "sliding_attention")


def test_sequences_beyond_learned_positions_are_noted() -> None:
    assert "/workload/seq_len" in assumed(problem(group_spec(), model=ModelSpec(preset="gpt2"), seq_len=2048))
    assert "/workload/seq_len" not in assumed(problem(group_spec(), model=ModelSpec(preset="gpt2"), seq_len=1024))


def test_a_hugging_face_config_brings_its_assumptions() -> None:
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4,
              "num_hidden_layers": 2, "vocab_size": 1000}
    found = problem(group_spec(), model=ModelSpec(hf_config=config))
    assert found.model.num_layers == 2
    assert "/model/hf_config/tie_word_embeddings" in assumed(found)
