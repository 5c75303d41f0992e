"""Fits matrix-product curves to gemm.csv, per device and precision: `python -m benchmarks.fits.gemm [DIRECTORY]` prints the catalogue's blocks."""
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.fits.least_squares import Floats, Parameter, Rows, fitted, held_out, spread
from benchmarks.fits.tables import COMMITTED, CURVES, block, device_of, directory_given, rounded, rows
from solver.catalog.curves import Fit, GemmCurve
from solver.catalog.efficiency import efficiency
from solver.cost.machine import FP4_BYTES, matmul_tflops
from solver.cost.operators import Rate, gemm_s
from solver.domain.workload import Precision
from solver.units import bytes_per_s_from_gb_s, flops_from_tflops, seconds_from_ms, seconds_from_us

KINDS = {"bfloat16": "half", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "fp4"}
ELEMENT_BYTES = {"half": 2.0, "fp8": 1.0, "fp8_block": 1.0, "fp4": FP4_BYTES}
PRECISIONS: Mapping[str, Precision] = {"half": "bf16", "fp8": "fp8", "fp8_block": "fp8", "fp4": "nvfp4"}
LARGE = 512                                                # rows (m) of a product of training size
SMALL_WEIGHT = 0.3                                         # of a row below that
FOLDS = 5                                                  # (n, k) shapes are held out together, two or more at a time
_SHARED = (Parameter(name="compute", start=0.85, lowest=0.1, highest=1.0),
           Parameter(name="bandwidth", start=0.75, lowest=0.1, highest=1.0, sigma=0.2),
           Parameter(name="fixed_us", start=4.0, lowest=0.1, highest=60.0, sigma=0.7),
           Parameter(name="wave", start=0.15, lowest=1e-3, highest=5.0, sigma=0.7),
           Parameter(name="short_k", start=150.0, lowest=1.0, highest=3000.0, sigma=0.7))
_CAST = Parameter(name="cast_bytes", start=6.0, lowest=0.01, highest=40.0, sigma=0.7)
PARAMETERS = {kind: _SHARED if kind == "half" else (*_SHARED, _CAST) for kind in ELEMENT_BYTES}
SOURCE = "gemm.csv: isolated products of {kernel}, aiconfigurator-core 0.12.0 (Apache-2.0)"
LAYER_SOURCE = "vidur_layer_ops.csv: products of Llama layers, microsoft/vidur 7d47513 (MIT)"
HEAD_WIDTH = 128                                           # of the layers in vidur_layer_ops.csv


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One device's products in one precision: m, n, k, seconds."""

    gpu: str
    kind: str
    source: str
    shapes: tuple[tuple[float, float, float], ...]
    seconds: Floats

    @property
    def large(self) -> NDArray[np.bool_]:
        """Which rows are of training size."""
        return np.array([m >= LARGE for m, _, _ in self.shapes])

    @property
    def folds(self) -> Rows:
        """Which fold holds a row out, by its (n, k)."""
        weights = sorted({(n, k) for _, n, k in self.shapes})
        return np.array([weights.index((n, k)) % FOLDS for _, n, k in self.shapes])


def tables(directory: Path = COMMITTED) -> list[Table]:
    """gemm.csv by device and precision, in the file's order, then the devices that vidur_layer_ops.csv alone has."""
    found: defaultdict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows(directory, "gemm.csv"):
        found[row["gpu"], KINDS[row["dtype"]], row["kernel"]].append(row)
    given_alone = [table for table in layer_tables(directory) if table.gpu in CURVES]
    return [Table(gpu=gpu, kind=kind, source=SOURCE.format(kernel=kernel), shapes=tuple((float(r["m"]), float(r["n"]), float(r["k"])) for r in given),
                  seconds=np.array([seconds_from_ms(float(r["latency_ms"])) for r in given]))
            for (gpu, kind, kernel), given in found.items()] + given_alone


def layer_tables(directory: Path = COMMITTED) -> list[Table]:
    """The four products of every layer in vidur_layer_ops.csv, by device."""
    found: defaultdict[str, list[tuple[tuple[float, float, float], float]]] = defaultdict(list)
    for row in rows(directory, "vidur_layer_ops.csv"):
        tokens, h, tp = float(row["num_tokens"]), float(row["hidden"]), float(row["tp"])
        f, q, kv = float(row["ffn"]) / tp, HEAD_WIDTH * float(row["heads"]) / tp, HEAD_WIDTH * max(1.0, float(row["kv_heads"]) / tp)
        for column, n, k in (("qkv_proj_ms", q + 2.0 * kv, h), ("o_proj_ms", h, q), ("mlp_up_gate_ms", 2.0 * f, h), ("mlp_down_ms", h, f)):
            found[row["gpu"]].append(((tokens, n, k), seconds_from_ms(float(row[column]))))
    return [Table(gpu=gpu, kind="half", source=LAYER_SOURCE, shapes=tuple(shape for shape, _ in given),
                  seconds=np.array([s for _, s in given])) for gpu, given in found.items()]


def rate_of(table: Table, curve: GemmCurve) -> Rate:
    """The idle device at its peak: isolated products do not throttle it."""
    device = device_of(table.gpu)
    peak = matmul_tflops(device, PRECISIONS[table.kind], efficiency().compute.fp4_over_fp8_peak)
    return Rate(flops_s=flops_from_tflops(peak), bandwidth_bytes_s=bytes_per_s_from_gb_s(device.memory_bandwidth_gb_s), curve=curve,
                sms=CURVES[table.gpu][2], element_bytes=ELEMENT_BYTES[table.kind])


def measured_call_s(rate: Rate, shape: tuple[float, float, float]) -> float:
    """What one call of the table takes: the product, after quantising its first operand."""
    m, n, k = shape
    return gemm_s(rate, m, n, k) + rate.curve.cast_bytes * m * k / rate.bandwidth_bytes_s


def curve_of(figures: Mapping[str, float]) -> GemmCurve:
    """A curve from named figures, its fixed time in microseconds."""
    rest = {key: value for key, value in figures.items() if key != "fixed_us"}
    return GemmCurve(fixed_s=seconds_from_us(figures["fixed_us"]), fit=None, **rest)


def log_errors(table: Table, curve: GemmCurve, chosen: Rows | None = None) -> Floats:
    """Log of predicted over measured, of the rows numbered in `chosen` (all by default)."""
    rate = rate_of(table, curve)
    numbers = range(len(table.shapes)) if chosen is None else chosen.tolist()
    return np.array([np.log(measured_call_s(rate, table.shapes[i]) / table.seconds[i]) for i in numbers])


def fit(table: Table) -> tuple[dict[str, float], Fit]:
    """The curve's figures and how well they do, every row predicted by a fit without its (n, k)."""
    parameters = PARAMETERS[table.kind]
    weights = np.where(table.large, 1.0, SMALL_WEIGHT)

    def curve(values: Floats) -> GemmCurve:
        return curve_of({p.name: float(v) for p, v in zip(parameters, values, strict=True)})

    def without(chosen: Rows) -> Floats:
        return fitted(parameters, lambda values: log_errors(table, curve(values), chosen), weights[chosen])

    errors = held_out(without, lambda values, chosen: log_errors(table, curve(values), chosen), table.folds)
    values = without(np.arange(len(table.shapes)))
    (median, p90), (large_median, large_p90) = spread(errors), spread(errors[table.large])
    ms, weights_shapes = sorted({m for m, _, _ in table.shapes}), {(n, k) for _, n, k in table.shapes}
    widths = [w for shape in weights_shapes for w in shape]
    shapes = f"m {', '.join(f'{m:.0f}' for m in ms)}; {len(weights_shapes)} pairs (n, k) from {min(widths):.0f} to {max(widths):.0f}"
    return ({p.name: rounded(float(v)) for p, v in zip(parameters, values, strict=True)},
            Fit(source=table.source, shapes=shapes, rows=len(table.shapes), median=rounded(median), p90=rounded(p90),
                large_median=rounded(large_median), large_p90=rounded(large_p90)))


def blocks(directory: Path) -> Iterator[str]:
    for table in tables(directory):
        yield f"\n# curves/{CURVES[table.gpu][0]}.toml"
        yield from block(f"gemm.{table.kind}", *fit(table))


if __name__ == "__main__":
    print("\n".join(blocks(directory_given(__doc__ or ""))))
