"""The measured tables and the devices that they are of."""
import argparse
import csv
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from solver.catalog.curves import Fit
from solver.catalog.loader import device
from solver.domain.cluster import Device

COMMITTED = Path(__file__).resolve().parents[2] / "tests" / "accuracy" / "measured"
CURVES = {                                                 # the tables' names: our curves, the catalogue's device, its multiprocessors (Xe cores)
    "a100_sxm": ("a100", "A100-SXM4-80GB", 108),
    "h100_sxm": ("h100", "H100-SXM5-80GB", 132),
    "h200_sxm": ("h200", "H200-SXM-141GB", 132),
    "b200_sxm": ("b200", "B200-SXM6-180GB", 148),
    "b300_sxm": ("b300", "B300-SXM6-270GB", 160),
    "gb200": ("gb200", "GB200-186GB", 152),
    "gb300": ("gb300", "GB300-278GB", 160),
    "l40s": ("l40s", "L40S", 142),
    "rtx_pro_6000_server": ("rtx-pro-6000", "RTX-PRO-6000-Server", 188),
    "b60": ("arc-b60", "Arc-Pro-B60-24GB", 20),
    "a40": ("a40", "A40", 84),
}
VIDUR = {"a100": ("a100", "A100-SXM4-80GB"), "h100": ("h100", "H100-SXM5-80GB"), "a40": ("a40", "A40")}


def rows(directory: Path, name: str) -> list[dict[str, str]]:
    """The rows of one table."""
    with (directory / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def directory_given(description: str) -> Path:
    """The data directory of the command line; the committed tables by default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("directory", nargs="?", type=Path, default=COMMITTED)
    found: Path = parser.parse_args().directory
    return found


def device_of(gpu: str) -> Device:
    """The catalogue's device of a table's GPU."""
    return device(CURVES[gpu][1])[0]


def block(title: str, figures: Mapping[str, Any], fit: Fit) -> Iterator[str]:
    """TOML lines of one curve: figures to three significant digits, strings quoted, then how well it fits."""
    yield f"[{title}]"
    for key, value in figures.items():
        yield f"{key} = {_written(value)}"
    yield f"[{title}.fit]"
    for key, value in asdict(fit).items():
        yield f"{key} = {_written(value)}"


def rounded(value: float) -> float:
    """To three significant digits, as written in the catalogue."""
    return float(f"{value:.3g}")


def _written(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value if isinstance(value, int) else rounded(value))
