"""Fits the curves of collectives.toml: `python -m benchmarks.fits.collectives [DIRECTORY]` prints the lines of the catalogue.

DIRECTORY holds nccl.csv, vidur_collectives.csv and nccl_tests_published.csv. Every operation of every class of link is fitted by itself; the network
of nodes with the links inside them as fitted before. What few rows cannot tell stays at its prior.
"""
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fits.least_squares import Floats, Parameter, fitted
from benchmarks.fits.tables import COMMITTED, directory_given, rounded, rows
from solver.catalog.collectives import Curve, LinkClass, collectives
from solver.cost.collectives import (
    Level,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    reduce_scatter_s,
    scattered_all_reduce_s,
    send_s,
    switch_all_reduce_s,
)
from solver.cost.collectives import Path as Levels
from solver.units import bytes_per_s_from_gb_s, seconds_from_ms, seconds_from_us

LARGE = 2**20                                              # message of training size
SMALL_WEIGHT = 0.5                                         # of a row below that
NVLINK_US, BRIDGE_US, PCIE_US, NETWORK_US = 4.0, 1.9, 5.7, 3.0   # hop latencies of the link tables
STATED = {                                                 # class, GB/s per GPU and direction, us per hop of the machines of the tables
    "a100_sxm": ("nvswitch_ampere", 300.0, NVLINK_US),
    "a100_dgx": ("nvswitch_ampere", 300.0, NVLINK_US),
    "h100_sxm": ("nvswitch_hopper", 450.0, NVLINK_US),
    "h200_sxm": ("nvswitch_hopper", 450.0, NVLINK_US),
    "h100_dgx": ("nvswitch_hopper", 450.0, NVLINK_US),
    "b200_sxm": ("nvswitch_blackwell", 900.0, NVLINK_US),
    "gb200": ("nvswitch_blackwell", 900.0, NVLINK_US),
    "a100_pairwise_nvlink": ("nvlink", 300.0, BRIDGE_US),
    "h100_pairwise_nvlink": ("nvlink", 300.0, BRIDGE_US),
    "rtx_pro_6000_server": ("pcie", 63.0, PCIE_US),
    "l40s": ("pcie_staged", 31.5, PCIE_US),
}
SWITCHES = {"nvswitch_hopper": 8, "nvswitch_blackwell": 8, "nvl72": 16}   # from how many ranks on the switch reduces
CURVES = ("all_reduce", "switch_all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
NETWORKS = {"infiniband", "efa"}
SHARED = {"pcie", "pcie_staged"}                           # GPUs share the way: each more achieves less
BASE = Parameter(name="base_us", start=8.0, lowest=0.5, highest=80.0, sigma=1.0)
HOP = Parameter(name="hop", start=0.25, lowest=0.02, highest=3.0, sigma=1.0)
FILL = Parameter(name="fill_us", start=2.0, lowest=0.01, highest=100.0, sigma=1.0)
SHARE = Parameter(name="share", start=0.75, lowest=0.02, highest=0.97, sigma=0.3)
FEW = Parameter(name="few_ranks", start=0.3, lowest=0.01, highest=0.9, sigma=1.0)
CROWDING = Parameter(name="crowding", start=0.5, lowest=0.01, highest=3.0, sigma=1.0)
FUNCTIONS: dict[str, Callable[[Levels, float], float]] = {
    "all_reduce": all_reduce_s, "ring_all_reduce": scattered_all_reduce_s, "all_gather": all_gather_s,
    "reduce_scatter": reduce_scatter_s, "all_to_all": all_to_all_s, "send": lambda path, size: send_s(path[0], size)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured operation: `path` names the class of every level, the one that is fitted last."""

    operation: str
    path: tuple[tuple[str, Level], ...]
    size_bytes: float
    seconds: float

    @property
    def fitted_class(self) -> str:
        return self.path[-1][0]

    @property
    def curve(self) -> str:
        return "all_reduce" if self.operation == "ring_all_reduce" else self.operation


def measured(directory: Path = COMMITTED) -> list[Row]:
    """Every row that some curve is fitted to."""
    return [*_nccl(directory), *_vidur(directory), *_published(directory)]


def _nccl(directory: Path) -> Iterator[Row]:
    for row in rows(directory, "nccl.csv"):
        if row["gpu"] in STATED:
            name, bandwidth, latency_us = STATED[row["gpu"]]
            operation, ranks = {"alltoall": "all_to_all"}.get(row["op"], row["op"]), int(row["num_gpus"])
            if operation == "all_reduce" and ranks >= SWITCHES.get(name, 1 << 20):
                operation = "switch_all_reduce"
            yield Row(operation=operation, path=((name, _level(ranks, bandwidth, latency_us)),), size_bytes=float(row["bytes"]),
                      seconds=seconds_from_ms(float(row["latency_ms"])))


def _vidur(directory: Path) -> Iterator[Row]:
    """Sends inside a node, sends between two H100 nodes (50 GB/s of network each), and all-reduces over NVLink bridges."""
    for row in rows(directory, "vidur_collectives.csv"):
        if row["num_gpus"] != "2" or row["topology"] not in STATED:
            continue
        name, bandwidth, latency_us = STATED[row["topology"]]
        near, operation = row["gpus_per_node"] == "2", {"send_recv": "send"}.get(row["op"], row["op"])
        if (near and (operation == "send" or name == "nvlink")) or (not near and operation == "send" and row["topology"] == "h100_dgx"):
            path = (name, _level(2, bandwidth, latency_us)) if near else ("infiniband", _level(2, 50.0, NETWORK_US))
            yield Row(operation=operation, path=(path,), size_bytes=float(row["size_raw"]), seconds=seconds_from_ms(float(row["latency_ms"])))


def _published(directory: Path) -> Iterator[Row]:
    for row in rows(directory, "nccl_tests_published.csv"):
        ranks, nodes = int(row["ranks"]), int(row["nodes"])
        path: list[tuple[str, Level]] = []
        if ranks > nodes:
            path.append((row["inside"], _level(ranks // nodes, float(row["inside_GBps"]), NVLINK_US)))
        if nodes > 1:
            path.append(("efa" if "EFA" in row["system"] else "infiniband", _level(nodes, float(row["network_GBps"]), NETWORK_US)))
        operation = "ring_all_reduce" if row["algorithm"] == "ring" else "switch_all_reduce" if path[-1][0] in SWITCHES else row["op"]
        yield Row(operation=operation, path=tuple(path), size_bytes=float(row["bytes"]), seconds=seconds_from_us(float(row["latency_us"])))


def _level(ranks: int, bandwidth_gb_s: float, latency_us: float) -> Level:
    return Level(ranks=ranks, latency_s=seconds_from_us(latency_us), bandwidth_bytes_s=bytes_per_s_from_gb_s(bandwidth_gb_s))


def predicted_s(row: Row, classes: dict[str, LinkClass]) -> float:
    """What the product predicts for a row; the curves of a ring where the switch was not used."""
    path = tuple(replace(level, link=classes[name]) for name, level in row.path)
    if row.operation == "switch_all_reduce":
        return switch_all_reduce_s(path[0], row.size_bytes)
    path = tuple(replace(level, link=replace(level.link, switch_all_reduce=None)) for level in path)
    return FUNCTIONS[row.operation](path, row.size_bytes)


def fit(name: str, operation: str, given: Sequence[Row], classes: dict[str, LinkClass]) -> dict[str, float]:
    """The figures of one curve, and its mean error, that of large messages, and the largest."""
    parameters = _parameters(name, operation, given)
    weights = np.array([1.0 if row.size_bytes >= LARGE else SMALL_WEIGHT for row in given])

    def log_errors(values: Floats) -> Floats:
        figures = {p.name: float(v) for p, v in zip(parameters, values, strict=True)}
        found = classes | {name: _with(name, classes[name], operation, curve_of(figures))}
        return np.array([np.log(predicted_s(row, found) / row.seconds) for row in given])

    values = np.array([rounded(float(v)) for v in fitted(parameters, log_errors, weights)])
    errors = np.abs(np.expm1(log_errors(values)))
    large = errors[weights == 1.0]
    figures = {p.name: float(v) for p, v in zip(parameters, values, strict=True)}
    return figures | {"error": float(np.mean(errors)), "large_error": float(np.mean(large)), "worst": float(np.max(errors))}


def _parameters(name: str, operation: str, given: Sequence[Row]) -> list[Parameter]:
    found = [BASE, FILL, SHARE]
    if len({row.path[-1][1].ranks for row in given}) > 1:
        if operation not in ("all_to_all", "switch_all_reduce") or name in SHARED:
            found.append(HOP)
        if name in SHARED:
            found.append(CROWDING)
        elif len(given[0].path) == 1 and operation != "switch_all_reduce":
            found.append(FEW)
    return found


def curve_of(figures: Mapping[str, float]) -> Curve:
    """A curve from the figures of the catalogue."""
    return Curve(base_s=seconds_from_us(figures["base_us"]), fill_s=seconds_from_us(figures["fill_us"]), share=figures["share"],
                 hop=figures.get("hop", 0.0), few_ranks=figures.get("few_ranks", 0.0), crowding=figures.get("crowding", 0.0))


def _with(name: str, link: LinkClass, operation: str, curve: Curve) -> LinkClass:
    """A class with one curve replaced; between nodes all-reduce, all-gather and reduce-scatter have one curve."""
    if name in NETWORKS and operation == "all_reduce":
        return replace(link, all_reduce=curve, all_gather=curve, reduce_scatter=curve)
    changed: dict[str, Any] = {operation: curve}
    return replace(link, **changed)


def fits(directory: Path = COMMITTED) -> Iterator[tuple[str, str, dict[str, float]]]:
    """(class, operation, figures) of every curve, those inside nodes first, as those between nodes are fitted with them."""
    classes, given = dict(collectives().classes), measured(directory)
    for name in sorted({row.fitted_class for row in given}, key=lambda n: (n in NETWORKS, n)):
        for operation in CURVES:
            chosen = [row for row in given if row.fitted_class == name and row.curve == operation]
            if chosen:
                figures = fit(name, operation, chosen, classes)
                classes[name] = _with(name, classes[name], operation, curve_of(figures))
                yield name, operation, figures


def line(operation: str, figures: Mapping[str, float]) -> str:
    """One curve as collectives.toml has it."""
    return f"{operation} = {{ {', '.join(f'{key} = {rounded(value):g}' for key, value in figures.items())} }}"


if __name__ == "__main__":
    last = ""
    for found in fits(directory_given(__doc__ or "")):
        if found[0] != last:
            print(f"\n[class.{found[0]}]")
        last = found[0]
        print(line(*found[1:]))
