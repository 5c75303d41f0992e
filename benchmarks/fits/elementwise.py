"""Fits the share of memory bandwidth that elementwise kernels reach to vidur_layer_ops.csv: `python -m benchmarks.fits.elementwise [DIRECTORY]`."""
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.fits.least_squares import Floats, Parameter, Rows, fitted, held_out, spread
from benchmarks.fits.tables import COMMITTED, VIDUR, block, directory_given, rounded, rows
from solver.catalog.curves import ElementwiseCurve, Fit
from solver.catalog.loader import device
from solver.cost.operators import elementwise_s
from solver.units import bytes_per_s_from_gb_s, seconds_from_ms, seconds_from_us

LEAST_BYTES = 2**20                                        # calls that move less only show their launch, in steps of a microsecond
LARGE_BYTES = 2**24                                        # of training size
SMALL_WEIGHT = 0.1                                         # of a row below that
FOLDS = 5
HEAD_WIDTH = 128
KERNELS: Mapping[str, tuple[tuple[str, ...], Callable[[float, float, float, float, float], float]]] = {
    # columns; elements of 16 bits that one call reads and writes, of tokens, hidden size, and FFN, head and KV head widths on one GPU
    "norm": (("ln1_ms", "ln2_ms"), lambda tokens, h, f, q, kv: 2.0 * tokens * h),
    "residual": (("residual_add_ms",), lambda tokens, h, f, q, kv: 3.0 * tokens * h),
    "activation": (("mlp_act_ms",), lambda tokens, h, f, q, kv: 3.0 * tokens * f),
    "rope": (("rope_ms",), lambda tokens, h, f, q, kv: 2.0 * tokens * (q + kv)),
}
PARAMETERS = (*(Parameter(name=name, start=0.6, lowest=0.05, highest=1.0) for name in KERNELS),
              Parameter(name="fixed_us", start=2.5, lowest=0.1, highest=20.0, sigma=0.7))
SOURCE = "vidur_layer_ops.csv: kernels of Llama layers, microsoft/vidur 7d47513 (MIT)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One measured kernel: which, how many tokens, bytes moved."""

    kernel: str
    tokens: float
    size_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One device's kernels."""

    gpu: str
    calls: tuple[Call, ...]
    seconds: Floats

    @property
    def large(self) -> NDArray[np.bool_]:
        """Which rows are of training size."""
        return np.array([call.size_bytes >= LARGE_BYTES for call in self.calls])


def tables(directory: Path = COMMITTED) -> list[Table]:
    """Every measured kernel that moves enough to say more than its launch, by device."""
    found: dict[str, list[tuple[Call, float]]] = {}
    for row in rows(directory, "vidur_layer_ops.csv"):
        tokens, h, tp = float(row["num_tokens"]), float(row["hidden"]), float(row["tp"])
        f, q, kv = float(row["ffn"]) / tp, HEAD_WIDTH * float(row["heads"]) / tp, HEAD_WIDTH * max(1.0, float(row["kv_heads"]) / tp)
        for kernel, (columns, elements) in KERNELS.items():
            call = Call(kernel=kernel, tokens=tokens, size_bytes=2.0 * elements(tokens, h, f, q, kv))
            if call.size_bytes >= LEAST_BYTES:
                found.setdefault(row["gpu"], []).extend((call, seconds_from_ms(float(row[column]))) for column in columns)
    return [Table(gpu=gpu, calls=tuple(call for call, _ in given), seconds=np.array([s for _, s in given])) for gpu, given in found.items()]


def curve_of(figures: Mapping[str, float]) -> ElementwiseCurve:
    """A curve from named figures, its fixed time in microseconds."""
    return ElementwiseCurve(fixed_s=seconds_from_us(figures["fixed_us"]), fit=None, **{kernel: figures[kernel] for kernel in KERNELS})


def log_errors(table: Table, curve: ElementwiseCurve, chosen: Rows | None = None) -> Floats:
    """Log of predicted over measured, of the rows numbered in `chosen` (all by default)."""
    bandwidth = bytes_per_s_from_gb_s(device(VIDUR[table.gpu][1])[0].memory_bandwidth_gb_s)
    numbers = range(len(table.calls)) if chosen is None else chosen.tolist()
    predicted = [elementwise_s(table.calls[i].size_bytes, bandwidth * getattr(curve, table.calls[i].kernel)) + curve.fixed_s for i in numbers]
    return np.log(np.array(predicted) / table.seconds[list(numbers)])


def fit(table: Table) -> tuple[dict[str, float], Fit]:
    """The curve's figures and how well they do, every row predicted by a fit without its fold (every fifth row)."""
    weights = np.where(table.large, 1.0, SMALL_WEIGHT)

    def curve(values: Floats) -> ElementwiseCurve:
        return curve_of({p.name: float(v) for p, v in zip(PARAMETERS, values, strict=True)})

    def without(chosen: Rows) -> Floats:
        return fitted(PARAMETERS, lambda values: log_errors(table, curve(values), chosen), weights[chosen])

    errors = held_out(without, lambda values, chosen: log_errors(table, curve(values), chosen), np.arange(len(table.calls)) % FOLDS)
    values = without(np.arange(len(table.calls)))
    (median, p90), (large_median, large_p90) = spread(errors), spread(errors[table.large])
    tokens = sorted({call.tokens for call in table.calls})
    return ({p.name: rounded(float(v)) for p, v in zip(PARAMETERS, values, strict=True)},
            Fit(source=SOURCE, shapes=f"tokens {', '.join(f'{t:.0f}' for t in tokens)}; Llama-2-7B and 70B, tensor degree 1 to 8",
                rows=len(table.calls), median=rounded(median), p90=rounded(p90), large_median=rounded(large_median), large_p90=rounded(large_p90)))


def blocks(directory: Path) -> Iterator[str]:
    for table in tables(directory):
        yield f"\n# curves/{VIDUR[table.gpu][0]}.toml"
        yield from block("elementwise", *fit(table))


if __name__ == "__main__":
    print("\n".join(blocks(directory_given(__doc__ or ""))))
