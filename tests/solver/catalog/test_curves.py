"""Which operator curves a device gets: its own where it was measured, else the nearest's, marked so."""
import tomllib
from dataclasses import replace
from importlib.resources import files

import pytest

from solver.catalog.curves import curves_of, measured_curves, measured_devices
from solver.catalog.efficiency import efficiency
from solver.catalog.loader import devices

SCALED = tomllib.loads((files("solver.catalog") / "curves" / "scaled.toml").read_text())
NAMES = {d.name for d in devices()}


@pytest.mark.parametrize("name", measured_curves())
def test_measured_curves_are_within_physical_bounds(name):
    curves = measured_curves()[name]
    for curve in curves.gemm.values():
        assert 0.0 < curve.compute <= 1.0 and 0.0 < curve.bandwidth <= 1.0
        assert curve.fixed_s >= 0.0 and curve.wave >= 0.0 and curve.short_k >= 0.0
    assert 0.0 < curves.attention.forward <= 1.0
    assert curves.source and curves.measured and curves.expected_error == 0.0


@pytest.mark.parametrize("name", measured_curves())
def test_every_fitted_curve_names_source_shapes_and_error(name):
    curves = measured_curves()[name]
    fits = [c.fit for c in curves.gemm.values()] + ([curves.attention.fit] if name != "a40" else [])
    assert all(fit is not None and fit.source and fit.shapes and fit.rows >= 20 and 0.0 < fit.large_median <= fit.large_p90 < 0.6 for fit in fits)


def test_every_device_named_by_the_curves_is_in_the_catalogue():
    assert {device for group in measured_devices().values() for device in group} | set(SCALED["device"]) <= NAMES


def test_no_device_is_both_measured_and_scaled():
    assert not {device for group in measured_devices().values() for device in group} & set(SCALED["device"])


def test_a_measured_device_has_its_own_curves():
    assert curves_of("H200-SXM-141GB", "hopper") is measured_curves()["h200"]
    assert curves_of("A800-SXM4-80GB", "ampere") is measured_curves()["a100"]


@pytest.mark.parametrize("device,arch,like", [("RTX-3090", "ampere", "a40"), ("RTX-5090", "blackwell", "rtx-pro-6000"), ("my-gpu", "hopper", "h100"),
                                              ("MI300X-192GB", "cdna3", "h100"), ("abacus", "bronze", "h100"), ("V100-SXM2-32GB", "volta", "a100")])
def test_any_other_device_has_the_nearest_shape_and_a_wider_error(device, arch, like):
    curves = curves_of(device, arch)
    assert curves.name == like
    assert not curves.measured
    assert curves.expected_error > 0.1
    assert curves.source.startswith("scaled")
    assert all(curve.fit is None for curve in curves.gemm.values())


def test_a_scaled_curve_changes_the_compute_share_alone():
    t4, a100 = curves_of("T4", "turing"), measured_curves()["a100"]
    by = SCALED["device"]["T4"]["compute"]
    assert t4.gemm["half"].compute == pytest.approx(by * a100.gemm["half"].compute)
    assert t4.attention.forward == pytest.approx(by * a100.attention.forward)
    assert (t4.gemm["half"].bandwidth, t4.gemm["half"].short_k) == (a100.gemm["half"].bandwidth, a100.gemm["half"].short_k)
    assert t4.sms == 40


def test_a_device_without_a_table_of_attention_has_its_neighbours_shape():
    assert measured_curves()["a40"].attention == replace(measured_curves()["a100"].attention, fit=None)


def test_kernels_of_small_memory_systems_reach_more_of_the_bandwidth():
    """A40 has a third of A100's bandwidth for three quarters of its multiprocessors."""
    assert 1.2 < measured_curves()["a40"].elementwise_gain < 1.7
    assert curves_of("RTX-A6000", "ampere").elementwise_gain == measured_curves()["a40"].elementwise_gain


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_training_never_needs_more_than_the_peak(device):
    arch, curves, own = efficiency().arch(device.arch), curves_of(device.name, device.arch), efficiency().devices.get(device.name)
    sustained = own.sustained if own else arch.sustained
    narrow = arch.narrow if own is None or own.narrow is None else own.narrow
    assert 0.0 < curves.gemm["half"].compute * sustained < 1.0
    assert all(0.0 < curve.compute * sustained * narrow < 1.0 for kind, curve in curves.gemm.items() if kind in ("fp8", "fp4"))
