"""Compute shares of devices without a table of products, from whole layers in helix_layer_times.csv: `python -m benchmarks.fits.layers [DIRECTORY]`.

A layer's prompt pass is nearly all matrix products. The share of its own peak that a device reaches on it, over the share that A100 reaches on the
same layers, is what the catalogue's `compute` in curves/scaled.toml carries over to the curve that the device borrows.
"""
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.fits.tables import directory_given, rounded, rows
from solver.catalog.curves import measured_curves
from solver.catalog.loader import device
from solver.units import flops_from_tflops, seconds_from_ms

LARGE = 1500                                               # tokens of a prompt pass; times are in whole milliseconds
DEVICES = {"v100": ("V100-SXM2-16GB", "a100"), "t4": ("T4", "a100"), "l4": ("L4", "l40s")}    # catalogue's device, the curve that it borrows
PARAMETERS = {"llama1_30b": 4 * 6656 * 6656 + 3 * 6656 * 17920,
              "llama2_70b": 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672}             # of one layer's matrices


def shares(directory: Path, machine: str, name: str) -> Mapping[tuple[str, float], float]:
    """Share of the device's 16-bit peak that a layer's products would need, by model and tokens."""
    entry = device(name)[0]
    peak = flops_from_tflops(entry.bf16_tflops or entry.fp16_tflops or 0.0)
    return {(row["model"], float(row["tokens_in_batch"])):
            2.0 * PARAMETERS[row["model"]] * float(row["tokens_in_batch"]) / seconds_from_ms(float(row["layer_time_ms"])) / peak
            for row in rows(directory, "helix_layer_times.csv")
            if row["machine"] == machine and row["phase"] == "prompt" and float(row["tokens_in_batch"]) >= LARGE}


def compute(directory: Path, machine: str) -> tuple[float, float]:
    """The factor on the borrowed curve's compute share, and its spread: half the distance of the quartiles."""
    name, like = DEVICES[machine]
    reference = statistics.median(shares(directory, "a100", "A100-SXM4-40GB").values())
    carried = measured_curves()["a100"].gemm["half"].compute / measured_curves()[like].gemm["half"].compute
    ratios = [share / reference * carried for share in shares(directory, machine, name).values()]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return middle, (high - low) / 2.0


def lines(directory: Path) -> Iterator[str]:
    for machine, (name, like) in DEVICES.items():
        middle, spread = compute(directory, machine)
        yield f"# {name}, like {like}: quartiles within {spread:.2f}\ncompute = {rounded(middle)}"


if __name__ == "__main__":
    print("\n".join(lines(directory_given(__doc__ or ""))))
