"""Fits attention curves to the context rows of attention.csv: `python -m benchmarks.fits.attention [DIRECTORY]` prints the catalogue's blocks."""
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.fits.least_squares import Floats, Parameter, Rows, fitted, held_out, spread
from benchmarks.fits.tables import COMMITTED, CURVES, block, device_of, directory_given, rounded, rows
from solver.catalog.curves import AttentionCurve, Fit
from solver.cost.operators import QUERY_BLOCK, AttentionRate, fused_attention_s, visited_area
from solver.units import bytes_per_s_from_gb_s, flops_from_tflops, seconds_from_ms, seconds_from_us

GENERATIONS = {"vllm_flash_attn": "flash_2", "vllm_flash_attn_fa2": "flash_2", "vllm_flash_attn_fa3": "flash_3",
               "vllm_flashinfer_trtllmprefill": "flash_3"}
LARGE = 2048                                               # sequence length of training size
SMALL_WEIGHT = 0.3                                         # of a row below that, or under a sliding window
FOLDS = 5
PARAMETERS = (Parameter(name="forward", start=0.7, lowest=0.05, highest=1.0),
              Parameter(name="softmax_width", start=20.0, lowest=0.1, highest=200.0, sigma=0.7),
              Parameter(name="least_width", start=130.0, lowest=1.0, highest=300.0, sigma=0.5),
              Parameter(name="half_length", start=700.0, lowest=1.0, highest=20000.0),
              Parameter(name="imbalance", start=0.5, lowest=1e-3, highest=5.0, sigma=0.7),
              Parameter(name="fixed_us", start=10.0, lowest=0.1, highest=60.0, sigma=0.7),
              Parameter(name="cache_bytes", start=5.0, lowest=0.01, highest=60.0, sigma=0.7))
# Of a table with one head width, which says nothing of others: published rates of FlashAttention-2 put heads 64 wide at 0.6 of the cost of 128.
ONE_WIDTH = {"softmax_width": 32.0, "least_width": 1.0}
SOURCE = "attention.csv: isolated causal prefill of {kernel}, 16-bit, aiconfigurator-core 0.12.0 (Apache-2.0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One measured call: sequences, their length, query heads, KV heads, head width, sliding window."""

    batch: float
    seq_len: float
    heads: float
    kv_heads: float
    width: float
    window: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One device's forward attention."""

    gpu: str
    kernel: str
    calls: tuple[Call, ...]
    seconds: Floats

    @property
    def large(self) -> NDArray[np.bool_]:
        """Which rows are of training size."""
        return np.array([call.seq_len >= LARGE for call in self.calls])


def tables(directory: Path = COMMITTED) -> list[Table]:
    """The context rows whose keys and values are cached in 16 bit, by device."""
    found: defaultdict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows(directory, "attention.csv"):
        if row["phase"] == "context" and row["kv_dtype"] == "bfloat16":
            found[row["gpu"], row["kernel"]].append(row)
    return [Table(gpu=gpu, kernel=kernel, calls=tuple(_call(row) for row in given),
                  seconds=np.array([seconds_from_ms(float(row["latency_ms"])) for row in given])) for (gpu, kernel), given in found.items()]


def _call(row: Mapping[str, str]) -> Call:
    return Call(batch=float(row["batch"]), seq_len=float(row["q_len"]), heads=float(row["q_heads"]), kv_heads=float(row["kv_heads"]),
                width=float(row["head_dim"]), window=float(row.get("window") or 0) or None)


def measured_call_s(gpu: str, curve: AttentionCurve, call: Call) -> float:
    """What one call of the table takes: the core forward, and writing keys and values to the cache."""
    device, sms = device_of(gpu), CURVES[gpu][2]
    rate = AttentionRate(flops_s=flops_from_tflops(device.bf16_tflops or device.fp16_tflops or 0.0), forward=curve.forward, backward=curve.forward,
                         softmax_width=curve.softmax_width, least_width=curve.least_width, half_length=curve.half_length,
                         waiting=2.0 * curve.imbalance * sms, fixed_s=curve.fixed_s)
    visited, streams = visited_area(call.seq_len, call.window), call.batch * call.heads
    cached = 2.0 * 2.0 * call.batch * call.seq_len * call.kv_heads * call.width
    return fused_attention_s(rate, streams * visited, 2.0 * call.width, 2.0 * visited / call.seq_len, streams * call.seq_len / QUERY_BLOCK)[0] \
        + curve.cache_bytes * cached / bytes_per_s_from_gb_s(device.memory_bandwidth_gb_s)


def curve_of(figures: Mapping[str, Any]) -> AttentionCurve:
    """A curve from named figures, its fixed time in microseconds."""
    rest = {key: value for key, value in figures.items() if key != "fixed_us"}
    return AttentionCurve(fixed_s=seconds_from_us(figures["fixed_us"]), fit=None, **rest)


def log_errors(table: Table, curve: AttentionCurve, chosen: Rows | None = None) -> Floats:
    """Log of predicted over measured, of the rows numbered in `chosen` (all by default)."""
    numbers = range(len(table.calls)) if chosen is None else chosen.tolist()
    return np.array([np.log(measured_call_s(table.gpu, curve, table.calls[i]) / table.seconds[i]) for i in numbers])


def fit(table: Table) -> tuple[dict[str, str | float], Fit]:
    """The curve's figures and how well they do, every row predicted by a fit without its fold (every fifth row)."""
    weights = np.where(table.large & np.array([call.window is None for call in table.calls]), 1.0, SMALL_WEIGHT)
    generation = GENERATIONS[table.kernel]
    parameters = PARAMETERS
    if len({call.width for call in table.calls}) == 1:
        parameters = tuple(replace(p, start=ONE_WIDTH[p.name], sigma=1e-3) if p.name in ONE_WIDTH else p for p in PARAMETERS)

    def curve(values: Floats) -> AttentionCurve:
        return curve_of({"kernel": generation, **{p.name: float(v) for p, v in zip(parameters, values, strict=True)}})

    def without(chosen: Rows) -> Floats:
        return fitted(parameters, lambda values: log_errors(table, curve(values), chosen), weights[chosen])

    errors = held_out(without, lambda values, chosen: log_errors(table, curve(values), chosen), np.arange(len(table.calls)) % FOLDS)
    values = without(np.arange(len(table.calls)))
    (median, p90), (large_median, large_p90) = spread(errors), spread(errors[table.large])
    figures: dict[str, str | float] = {"kernel": generation}
    figures |= {p.name: rounded(float(v)) for p, v in zip(parameters, values, strict=True)}
    return figures, Fit(source=SOURCE.format(kernel=table.kernel), shapes=_shapes(table), rows=len(table.calls), median=rounded(median),
                        p90=rounded(p90), large_median=rounded(large_median), large_p90=rounded(large_p90))


def _shapes(table: Table) -> str:
    def span(values: set[float]) -> str:
        return ", ".join(f"{v:.0f}" for v in sorted(values))

    calls = table.calls
    windows = span({c.window for c in calls if c.window})
    return (f"batch {span({c.batch for c in calls})}; length {span({c.seq_len for c in calls})}; query heads {span({c.heads for c in calls})}; "
            f"KV heads {span({c.kv_heads for c in calls})}; head width {span({c.width for c in calls})}" + (f"; window {windows}" if windows else ""))


def blocks(directory: Path) -> Iterator[str]:
    for table in tables(directory):
        yield f"\n# curves/{CURVES[table.gpu][0]}.toml"
        yield from block("attention", *fit(table))


if __name__ == "__main__":
    print("\n".join(blocks(directory_given(__doc__ or ""))))
