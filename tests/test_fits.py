"""The fitted operator curves: the committed tables give the catalogue's figures, and the curves miss the tables by what they state."""
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from benchmarks.fits import attention, elementwise, gemm, layers
from benchmarks.fits.least_squares import Parameter, fitted, held_out, spread
from benchmarks.fits.tables import COMMITTED, CURVES, VIDUR, block
from solver.catalog.curves import Fit, curves_of, measured_curves
from solver.catalog.loader import device
from solver.cost.operators import Rate

PRODUCTS = {f"{CURVES[table.gpu][0]}-{table.kind}": table for table in gemm.tables()}
CORES = {CURVES[table.gpu][0]: table for table in attention.tables()}
KERNELS = {VIDUR[table.gpu][0]: table for table in elementwise.tables()}
MLA_A100_S = {(1, 16, 16384): 8.9e-3, (1, 128, 4096): 4.66e-3, (4, 128, 4096): 18.4e-3}


def reproduces(fit: Fit | None, log_errors: np.ndarray, large: np.ndarray) -> None:
    """Errors on the whole table are no larger than stated for rows that a fit did not see, up to the rounding of the figures."""
    assert fit is not None
    assert fit.rows == len(log_errors)
    for errors, median, p90 in ((log_errors, fit.median, fit.p90), (log_errors[large], fit.large_median, fit.large_p90)):
        found = spread(np.expm1(errors))
        assert found[0] <= median + 0.01
        assert found[1] <= 1.2 * p90 + 0.01
        assert found[0] >= 0.4 * median, "stated errors are far above what the curve does: stale"


@pytest.mark.parametrize("name", PRODUCTS)
def test_product_curves_reproduce_their_tables(name):
    table = PRODUCTS[name]
    curve = measured_curves()[CURVES[table.gpu][0]].gemm[table.kind]
    reproduces(curve.fit, gemm.log_errors(table, curve), table.large)


@pytest.mark.parametrize("name", CORES)
def test_attention_curves_reproduce_their_tables(name):
    table, curve = CORES[name], measured_curves()[name].attention
    reproduces(curve.fit, attention.log_errors(table, curve), table.large)


@pytest.mark.parametrize("name", KERNELS)
def test_elementwise_curves_reproduce_their_tables(name):
    table, curve = KERNELS[name], measured_curves()[name].elementwise
    assert curve is not None
    reproduces(curve.fit, elementwise.log_errors(table, curve), table.large)


@pytest.mark.parametrize("name", ["a100-half", "a40-half"])
def test_the_fit_of_products_gives_the_catalogues_figures(name):
    refit_product(name)


@pytest.mark.long
@pytest.mark.parametrize("name", PRODUCTS)
def test_every_fit_of_products_gives_the_catalogues_figures(name):
    refit_product(name)


def refit_product(name: str) -> None:
    table = PRODUCTS[name]
    figures, fit = gemm.fit(table)
    assert measured_curves()[CURVES[table.gpu][0]].gemm[table.kind] == replace(gemm.curve_of(figures), fit=fit)


@pytest.mark.parametrize("name", ["a100", *(pytest.param(n, marks=pytest.mark.long) for n in CORES if n != "a100")])
def test_the_fit_of_attention_gives_the_catalogues_figures(name):
    figures, fit = attention.fit(CORES[name])
    assert measured_curves()[name].attention == replace(attention.curve_of(figures), fit=fit)


@pytest.mark.parametrize("name", KERNELS)
def test_the_fit_of_elementwise_kernels_gives_the_catalogues_figures(name):
    figures, fit = elementwise.fit(KERNELS[name])
    assert measured_curves()[name].elementwise == replace(elementwise.curve_of(figures), fit=fit)


@pytest.mark.parametrize("machine,name", [("v100", "V100-SXM2-16GB"), ("t4", "T4"), ("l4", "L4")])
def test_borrowed_curves_carry_what_whole_layers_reach(machine, name):
    """Volta's, T4's and L4's compute share over the measured curve's is what the layers say."""
    factor, spread_of_it = layers.compute(COMMITTED, machine)
    borrowed = curves_of(name, device(name)[0].arch)
    assert not borrowed.measured
    assert borrowed.gemm["half"].compute == pytest.approx(factor * measured_curves()[borrowed.name].gemm["half"].compute, rel=0.01)
    assert spread_of_it < 0.05


@pytest.mark.parametrize("name", ["a100", "h100"])
def test_layers_run_back_to_back_are_slower_than_isolated_products(name):
    """A second source (Vidur) on the same devices: within a tenth below m = 512, a tenth to a sixth slower above, where clocks fall."""
    table = next(t for t in gemm.layer_tables() if t.gpu == name)
    errors = gemm.log_errors(replace(table, gpu=f"{name}_sxm"), measured_curves()[name].gemm["half"])
    assert abs(np.median(errors[~table.large])) < 0.06
    assert -0.17 < np.median(errors[table.large]) < -0.08


def test_a_roofline_of_three_parameters_is_no_better():
    """What the wave and short-k terms buy: the share of tables where the held-out median is below that of a plain roofline."""
    won = [PRODUCTS[name] for name in PRODUCTS if PRODUCTS[name].kind == "half" and roofline_median(PRODUCTS[name]) >= stated_median(PRODUCTS[name])]
    assert len(won) >= 0.7 * sum(table.kind == "half" for table in PRODUCTS.values())


def stated_median(table: gemm.Table) -> float:
    fit = measured_curves()[CURVES[table.gpu][0]].gemm[table.kind].fit
    assert fit is not None
    return fit.large_median


def roofline_median(table: gemm.Table) -> float:
    rate: Rate = gemm.rate_of(table, measured_curves()[CURVES[table.gpu][0]].gemm[table.kind])
    m, n, k = np.array(table.shapes).T
    compute, moved = 2.0 * m * n * k / rate.flops_s, 2.0 * (m * k + n * k + m * n) / rate.bandwidth_bytes_s

    def errors(values, rows):
        return np.log((np.maximum(compute / values[0], moved / values[1]) + values[2] * 1e-6)[rows] / table.seconds[rows])

    parameters = [Parameter(name="e", start=0.8, lowest=0.1, highest=1.0), Parameter(name="b", start=0.7, lowest=0.1, highest=1.0),
                  Parameter(name="t", start=4.0, lowest=0.1, highest=60.0)]
    weights = np.where(table.large, 1.0, gemm.SMALL_WEIGHT)
    found = held_out(lambda rows: fitted(parameters, lambda v: errors(v, rows), weights[rows]), errors, table.folds)
    return spread(found[table.large])[0]


def test_latent_attention_is_priced_by_its_widths():
    """TensorRT-LLM's prefill of heads 192 and 128 wide on A100 (aiconfigurator-core 0.12.0, Apache-2.0): within a fifth, keys and values included."""
    curve = measured_curves()["a100"].attention
    for (batch, heads, seq_len), seconds in MLA_A100_S.items():
        call = attention.Call(batch=batch, seq_len=seq_len, heads=heads, kv_heads=0, width=(192 + 128) / 2, window=None)
        assert attention.measured_call_s("a100_sxm", curve, call) == pytest.approx(seconds, rel=0.2)


def test_the_programs_run_from_the_command_line_and_take_a_directory(tmp_path):
    (tmp_path / "helix_layer_times.csv").write_bytes((COMMITTED / "helix_layer_times.csv").read_bytes())
    run = [sys.executable, "-m", "benchmarks.fits.layers"]
    default, given = (subprocess.run([*run, *more], capture_output=True, text=True, check=True).stdout for more in ((), (str(tmp_path),)))
    assert default == given
    assert default.count("compute = ") == 3


def test_printed_blocks_are_the_catalogues():
    printed = tomllib.loads("\n".join(block("gemm.half", *gemm.fit(PRODUCTS["a100-half"]))))
    kept = tomllib.loads((files("solver.catalog") / "curves" / "a100.toml").read_text())
    assert printed["gemm"]["half"] == kept["gemm"]["half"]


def test_least_squares_finds_known_parameters_and_ignores_outliers():
    x = np.linspace(1.0, 50.0, 60)
    measured = 3.0 * x + 20.0
    measured[::10] *= 4.0
    parameters = [Parameter(name="slope", start=1.0, lowest=0.01, highest=100.0), Parameter(name="offset", start=1.0, lowest=0.01, highest=1000.0)]
    slope, offset = fitted(parameters, lambda v: np.log((v[0] * x + v[1]) / measured), np.ones(60))
    assert slope == pytest.approx(3.0, rel=0.03)
    assert offset == pytest.approx(20.0, rel=0.1)


def test_a_prior_holds_what_the_rows_do_not_say():
    parameters = [Parameter(name="a", start=1.0, lowest=0.01, highest=100.0), Parameter(name="b", start=7.0, lowest=0.01, highest=100.0, sigma=0.5)]
    a, b = fitted(parameters, lambda v: np.log(v[0] / np.full(5, 2.0)), np.ones(5))
    assert a == pytest.approx(2.0, rel=1e-3)
    assert b == pytest.approx(7.0, rel=1e-3)


def test_held_out_errors_come_from_fits_without_the_row():
    values = np.array([1.0, 1.0, 1.0, 2.0])
    errors = held_out(lambda rows: np.array([np.median(values[rows])]), lambda v, rows: np.log(v[0] / values[rows]), np.array([0, 1, 2, 3]))
    assert errors == pytest.approx([0.0, 0.0, 0.0, -0.5])
