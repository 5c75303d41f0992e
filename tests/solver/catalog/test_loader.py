"""The catalogue: complete, with a source for each entry, and found under the names that people type."""
import re
from collections import defaultdict

import pytest

from solver.catalog import loader
from solver.catalog.names import name_key
from solver.errors import UnknownName


def test_holds_every_device_and_link_with_a_source() -> None:
    assert len(loader.devices()) == 75
    assert len(loader.links()) == 55
    assert all(d.source and d.confidence in ("low", "medium", "high") for d in loader.devices())
    assert all(row.source and row.scope for row in loader.links())
    assert len({d.name for d in loader.devices()}) == 75


def test_figures_of_a_device() -> None:
    entry = loader.catalog_entry("H100-SXM5-80GB")
    device = entry.device
    assert (device.vendor, device.arch, entry.form_factor, entry.compute_capability) == ("nvidia", "hopper", "sxm5", "9.0")
    assert device.memory_gib == 80.0
    assert device.reported_memory_gib == pytest.approx(81559 / 1024)
    assert device.capacity_gib == device.reported_memory_gib
    assert (device.bf16_tflops, device.fp8_tflops, device.fp4_tflops) == (989.0, 1978.0, None)
    assert (device.link_gb_s, device.link_domain_gpus, device.network_gb_s, device.price_usd_per_hour) == (450.0, 8, 50.0, 2.95)
    assert "tf32" in entry.recalled_fields
    assert entry.price_source is not None and entry.price_as_of is not None


def test_memory_that_no_driver_report_is_known_for_is_the_vendors() -> None:
    device = loader.device("VR200")[0]
    assert device.reported_memory_gib == device.memory_gib == 288.0


def test_figures_are_floats_however_the_file_writes_them() -> None:
    for device in loader.devices():
        assert all(isinstance(value, float) for value in (device.memory_gib, device.link_gb_s, device.network_gb_s, device.memory_bandwidth_gb_s))


@pytest.mark.parametrize(("typed", "meant"), [
    ("NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB"),
    ("nvidia_h100_80gb_hbm3", "H100-SXM5-80GB"),
    ("H100-80GB-HBM3", "H100-SXM5-80GB"),
    ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
    ("h100 sxm5 80gb", "H100-SXM5-80GB"),
    ("A100-SXM-80GB", "A100-SXM4-80GB"),
    ("a100_sxm4_40gb", "A100-SXM4-40GB"),
    ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
    ("NVIDIA GeForce RTX 4090", "RTX-4090"),
    ("AMD Instinct MI300X OAM", "MI300X-192GB"),
    ("habana.ai/gaudi", "Gaudi2-96GB"),
    ("tpu-v5-lite-podslice", "TPU-v5e-16GB"),
])
def test_names_as_people_type_them(typed: str, meant: str) -> None:
    device, assumptions = loader.device(typed)
    assert device.name == meant
    assert assumptions == ()


@pytest.mark.parametrize(("family", "meant", "other"), [
    ("h100", "H100-SXM5-80GB", "H100-PCIE-80GB"), ("NVIDIA A100", "A100-SXM4-80GB", "A100-SXM4-40GB"), ("V100", "V100-SXM2-16GB", "V100-PCIE-32GB"),
    ("trainium", "Trainium1-32GB", "Trainium2-96GB"),
])
def test_an_ambiguous_family_takes_its_default_and_says_so(family: str, meant: str, other: str) -> None:
    device, (assumption,) = loader.device(family)
    assert device.name == meant
    assert meant in assumption.message
    assert other in assumption.alternatives and meant not in assumption.alternatives


def test_families_name_devices_of_the_catalogue() -> None:
    names = {d.name for d in loader.devices()}
    for family in loader.device_families():
        assert family.default in family.candidates
        assert set(family.candidates) <= names


def test_no_alias_means_two_devices() -> None:
    meanings = defaultdict(set)
    for entry in loader.device_entries():
        for alias in (*entry.aliases, entry.device.name):
            meanings[name_key(alias)].add(entry.device.name)
    assert {alias: found for alias, found in meanings.items() if len(found) > 1} == {}


def test_every_device_and_every_alias_resolves() -> None:
    for entry in loader.device_entries():
        for alias in (*entry.aliases, entry.device.name):
            loader.device(alias)
        assert loader.link(entry.link).latency_us > 0
        if entry.pcie_gen is not None:
            assert loader.link(f"pcie{entry.pcie_gen}-x16").raw_gb_s > 0


@pytest.mark.parametrize("typed", ["H100-SMX", "h1000", "", "x" * 10_000])
def test_an_unknown_gpu_is_refused_with_what_would_be_legal(typed: str) -> None:
    with pytest.raises(UnknownName) as caught:
        loader.device(typed)
    (fault,) = caught.value.faults
    assert fault.legal
    assert len(fault.message) < 200


def test_a_misspelt_gpu_is_answered_with_the_closest_names() -> None:
    with pytest.raises(UnknownName, match="A100-SXM4-80GB"):
        loader.device("A100-SXM4-80GBB")


def test_an_unknown_model_is_answered_with_the_closest_names() -> None:
    assert loader.preset("Llama-3.1-70B").num_layers == 80
    with pytest.raises(UnknownName, match="llama-3.1-70b"):
        loader.preset("llama-31-70b")
    with pytest.raises(UnknownName, match="nvswitch-h100"):
        loader.link("nvswitch-h10")


def test_links_carry_raw_and_achieved_bandwidth() -> None:
    row = loader.link("nvswitch-h100")
    assert (row.raw_gb_s, row.achieved_gb_s, row.latency_us) == (450.0, 371.0, 4.0)
    assert all(row.achieved_gb_s <= row.raw_gb_s for row in loader.links())


def test_presets_are_many_and_named_after_themselves() -> None:
    presets = loader.presets()
    assert len(presets) >= 25
    assert len({name_key(p.name) for p in presets}) == len(presets)
    assert all(p.architecture.name == p.name and p.source for p in presets)


def test_a_pattern_of_layers_is_spread_over_all_of_them() -> None:
    model = loader.preset("gpt-oss-20b")
    assert model.layer_types is not None
    assert len(model.layer_types) == model.num_layers
    assert model.layer_types[:3] == ("sliding_attention", "full_attention", "sliding_attention")


def test_the_version_is_a_short_digest() -> None:
    assert re.fullmatch(r"[0-9a-f]{12}", loader.CATALOGUE_VERSION)
