"""Fits kernels of one layer's routed experts to moe.csv: `python -m benchmarks.fits.moe [DIRECTORY]` prints tests/accuracy/measured/moe_kernels.toml.

The products are priced by the cost model's own `grouped_s`; what is fitted describes the serving kernel of the table. Training frameworks run others,
whose rate is `grouped_share` of efficiency.toml.
"""
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.fits.least_squares import Floats, Parameter, Rows, fitted, held_out, spread
from benchmarks.fits.moe_loads import counts
from benchmarks.fits.tables import COMMITTED, CURVES, device_of, directory_given, rounded, rows
from solver.catalog.curves import measured_curves
from solver.cost.experts import Load, grouped_s
from solver.cost.operators import Rate
from solver.units import bytes_per_s_from_gb_s, flops_from_tflops, seconds_from_ms, seconds_from_us

KINDS = {"bfloat16": "half", "fp8": "fp8", "fp8_block": "fp8_block"}
CACHE_BYTES = {"a100_sxm": 40e6, "h100_sxm": 50e6, "h200_sxm": 50e6, "b200_sxm": 126e6, "l40s": 96e6}     # second-level cache, by the vendor
CACHE_SPEED = 2.5                                          # of memory: weights that repeated calls find there; any factor of 2 to 4 fits as well
TILES = (16, 32, 64, 128)                                  # rows of a tile that kernels are built with
FOLDS = 5
HEAD = """Kernels of routed experts as fitted to moe.csv, printed by `python -m benchmarks.fits.moe`: see there for what the figures mean.
mean, median, p90: size of the relative errors; left_out_mean: of fits without the row's shape. The A100 kernel runs without tuned tiles for most
shapes: the same work takes twice as long in one as in another, which no figure of the shape explains. Two of the fp8 kernels stay far below the peak.
Source of the rows: aiconfigurator-core 0.12.0 (NVIDIA), Apache-2.0."""
PARAMETERS = (
    Parameter(name="compute", start=0.6, lowest=0.05, highest=1.5, sigma=0.5),
    Parameter(name="bandwidth", start=0.78, lowest=0.3, highest=1.0, sigma=0.15),
    Parameter(name="fixed_us", start=12.0, lowest=1.0, highest=200.0, sigma=0.7),
    Parameter(name="elementwise", start=0.8, lowest=0.1, highest=3.0, sigma=0.4),
    Parameter(name="partial", start=0.9, lowest=0.3, highest=3.0, sigma=0.3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One row: N tokens into experts of 2 f x h and h x f; what reaches them, averaged over draws of the distribution; seconds.

    tiles: by rows of a tile, how many are full and how many are not.
    """

    tokens: int
    hidden: int
    width: int
    top_k: int
    shape: str
    rows: float
    experts: float
    tiles: Mapping[int, tuple[float, float]]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel on a device. compute, bandwidth: shares of the peaks; fixed_s: per call; elementwise: share of memory bandwidth in activation,
    permutation and sum; partial: time of a tile that is not full; tile: its rows."""

    compute: float
    bandwidth: float
    fixed_s: float
    elementwise: float
    partial: float
    tile: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of one device, precision and kernel."""

    gpu: str
    kind: str
    kernel: str
    calls: tuple[Call, ...]

    @property
    def everywhere(self) -> bool:
        """Triton kernels visit the rows of other ranks' experts too, and write zeros for them."""
        return "triton" in self.kernel or self.kernel == "vllm_fused_moe"

    @property
    def folds(self) -> np.ndarray:
        """Which fold holds a row out: shapes are held out whole."""
        shapes = sorted({c.shape for c in self.calls})
        return np.array([shapes.index(c.shape) % FOLDS for c in self.calls])


def tables(directory: Path = COMMITTED) -> list[Table]:
    """moe.csv by device, precision and kernel."""
    found: defaultdict[tuple[str, str, str], list[Call]] = defaultdict(list)
    for row in rows(directory, "moe.csv"):
        found[row["gpu"], KINDS[row["dtype"]], row["kernel"]].append(_call(row))
    return [Table(gpu=gpu, kind=kind, kernel=kernel, calls=tuple(calls)) for (gpu, kind, kernel), calls in sorted(found.items())]


def _call(row: dict[str, str]) -> Call:
    tokens, experts, top_k, ranks, cut = (int(row[c]) for c in ("num_tokens", "experts", "topk", "moe_ep", "moe_tp"))
    routed = row["model"].startswith("deepseek") and row["version"] != "0.14.0"      # that release is timed without its router
    each = counts(tokens, experts, top_k, ranks, row["distribution"], routed)
    return Call(tokens=tokens, hidden=int(row["hidden"]), width=int(row["inter"]) // cut, top_k=top_k,
                shape=f"{row['model']} {cut} {ranks} {row['distribution']}", rows=float(np.mean([e.sum() for e in each])),
                experts=float(np.mean([np.sum(e > 0) for e in each])),
                tiles={t: (float(np.mean([np.sum(e // t) for e in each])), float(np.mean([np.sum(e % t > 0) for e in each]))) for t in TILES},
                seconds=seconds_from_ms(float(row["latency_ms"])))


def rate_of(table: Table) -> Rate:
    """The idle device at its peak. Losses of few tiles and short products are those of its single products in this precision."""
    device, curves = device_of(table.gpu), measured_curves()[CURVES[table.gpu][0]]
    single = curves.gemm[table.kind if table.kind in curves.gemm else "half"]
    half = device.bf16_tflops or 0.0
    peak, size = (half, 2.0) if table.kind == "half" else (device.fp8_tflops or half, 1.0)
    return Rate(flops_s=flops_from_tflops(peak), bandwidth_bytes_s=bytes_per_s_from_gb_s(device.memory_bandwidth_gb_s),
                curve=replace(single, fixed_s=0.0), sms=curves.sms, element_bytes=size)


def call_s(table: Table, idle: Rate, kernel: Kernel, call: Call) -> float:
    """Both products; activation, permutation and sum, in two bytes; what a call takes at least.

    A matrix that the cache does not hold is read again for every tile of rows; calls whose weights all fit find them there, as they are repeated.
    """
    rate = replace(idle, curve=replace(idle.curve, compute=kernel.compute, bandwidth=kernel.bandwidth))
    h, f, cache, size = call.hidden, call.width, CACHE_BYTES[table.gpu], rate.element_bytes
    full, cut = call.tiles[kernel.tile]
    near = CACHE_SPEED if call.experts * 3 * h * f * size < cache else 1.0
    seconds = kernel.fixed_s
    for n, k in ((2 * f, h), (h, f)):
        reads = call.experts + max(0.0, full + cut - call.experts) * max(0.0, 1.0 - cache / (n * k * size))
        seconds += grouped_s(rate, Load(rows=call.rows, experts=reads / near, computed=kernel.tile * (full + kernel.partial * cut)), n, k)
    visited = float(call.tokens * call.top_k) if table.everywhere else call.rows
    permuted = 0.0 if table.everywhere else call.rows * h * (2.0 + size)
    moved = 2.0 * visited * (3 * f + h) + 4.0 * call.tokens * h + permuted
    return seconds + moved / (rate.bandwidth_bytes_s * kernel.elementwise)


def kernel_of(values: Sequence[float], tile: int) -> Kernel:
    compute, bandwidth, fixed_us, elementwise, partial = values
    return Kernel(compute=compute, bandwidth=bandwidth, fixed_s=seconds_from_us(fixed_us), elementwise=elementwise, partial=partial, tile=tile)


def log_errors(table: Table, kernel: Kernel, chosen: Rows | None = None) -> Floats:
    """Log of predicted over measured, of the rows numbered in `chosen` (all by default)."""
    idle = rate_of(table)
    calls = table.calls if chosen is None else [table.calls[i] for i in chosen]
    return np.array([np.log(call_s(table, idle, kernel, call) / call.seconds) for call in calls])


def fit(table: Table) -> tuple[Kernel, Floats, Floats]:
    """The kernel, relative errors of its rows, and those of every row as predicted by a fit without its shape."""
    numbers = np.arange(len(table.calls))

    def kernel(values: Floats, tile: int) -> Kernel:
        return kernel_of([float(v) for v in values], tile)

    def within(chosen: Rows, tile: int) -> Floats:
        return fitted(PARAMETERS, lambda values: log_errors(table, kernel(values, tile), chosen), np.ones(len(chosen)))

    tried = [(tile, within(numbers, tile)) for tile in TILES]
    tile, values = min(tried, key=lambda t: float(np.mean(np.abs(log_errors(table, kernel(t[1], t[0]))))))
    errors = held_out(lambda chosen: within(chosen, tile), lambda v, chosen: log_errors(table, kernel(v, tile), chosen), table.folds)
    found = kernel_of([rounded(float(v)) for v in values], tile)
    return found, np.expm1(log_errors(table, found)), errors


def blocks(directory: Path) -> Iterator[str]:
    yield f"# {HEAD.replace(chr(10), chr(10) + '# ')}"
    for table in tables(directory):
        kernel, errors, left_out = fit(table)
        figures = asdict(kernel) | {"fixed_us": kernel.fixed_s * 1e6, "rows": len(table.calls), "mean": np.mean(np.abs(errors)),
                                    "median": spread(errors)[0], "p90": spread(errors)[1], "left_out_mean": np.mean(np.abs(left_out))}
        yield f'\n[[kernel]]\ngpu = "{table.gpu}"\nkind = "{table.kind}"\nname = "{table.kernel}"'
        yield from (f"{name} = {value if isinstance(value, int) else rounded(float(value))}" for name, value in figures.items() if name != "fixed_s")


if __name__ == "__main__":
    print("\n".join(blocks(directory_given(__doc__ or ""))))
