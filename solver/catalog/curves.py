"""Measured operator curves of single devices, read from curves/*.toml: matrix products by precision, and the attention core."""
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from solver.units import seconds_from_us

_ROOT = files("solver.catalog") / "curves"
_SCALED = "scaled.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Where a curve comes from and how well it does on shapes that it was not fitted to: median and 90th percentile of the relative error.
    `large_*` is of the rows of training size: m >= 512, or sequences of at least 2048."""

    source: str
    shapes: str
    rows: int
    median: float
    p90: float
    large_median: float
    large_p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmCurve:
    """Efficiency of matrix products on an idle device: shares of peak FLOP/s and of memory bandwidth, a fixed time, wave and short-k losses.

    cast_bytes: per element of the first operand, what the measured call spends on quantising it. It describes the table: layers price casts
    themselves.
    """

    compute: float
    bandwidth: float
    fixed_s: float
    wave: float
    short_k: float
    cast_bytes: float = 0.0
    fit: Fit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCurve:
    """Forward time of a fused attention core: share of the 16-bit peak that long sequences reach, the softmax of a score as head width that it is
    worth and as the least width that a score costs, the length at which work per token equals work per score, the part of the longest block's time
    that the other multiprocessors wait for, and a fixed time.

    cache_bytes: passes over keys and values for a cache that the measured kernel writes and training does not.
    """

    kernel: str                                            # generation: flash_2, flash_3
    forward: float
    softmax_width: float
    least_width: float
    half_length: float
    imbalance: float
    fixed_s: float
    cache_bytes: float = 0.0
    fit: Fit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseCurve:
    """Share of the memory bandwidth that single kernels of a layer reach, and the time that each takes at least."""

    norm: float
    residual: float
    activation: float
    rope: float
    fixed_s: float
    fit: Fit | None = None

    @property
    def share(self) -> float:
        """Of all kernels of a gated layer, by the bytes that each moves (Llama-70B: two norms 8, two residuals 12, activation 21, rotary 4.5 per
        token and hidden unit)."""
        moved = ((8.0, self.norm), (12.0, self.residual), (21.0, self.activation), (4.5, self.rope))
        return sum(size for size, _ in moved) / sum(size / reached for size, reached in moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCurves:
    """One device's curves. `gemm` has "half" and, where the device has such units, "fp8", "fp8_block" and "fp4".

    measured: a table of this device exists; otherwise the shape is that of `name`, at the device's own peaks, and `expected_error` is the least
    error of a step time that it allows. elementwise_gain: share of the memory bandwidth that elementwise kernels reach, over that of the device that
    the architecture's constants were fitted on.
    """

    name: str
    measured: bool
    sms: int                                               # streaming multiprocessors or compute units
    gemm: Mapping[str, GemmCurve]
    attention: AttentionCurve
    elementwise: ElementwiseCurve | None = None
    elementwise_gain: float = 1.0
    expected_error: float = 0.0
    source: str = ""


def curves_of(device: str, arch: str) -> DeviceCurves:
    """The curves of a device: its own, else those of the nearest measured one (by device, then by architecture), marked as scaled."""
    measured = _measured_by_device().get(device)
    if measured is not None:
        return measured
    scaled = _scaled()
    return scaled.get(f"device.{device}") or scaled.get(f"arch.{arch}") or scaled["arch.default"]


@functools.cache
def measured_curves() -> Mapping[str, DeviceCurves]:
    """Every measured set of curves by its name."""
    return {path.name.removesuffix(".toml"): _curves(path.name.removesuffix(".toml"), tomllib.loads(path.read_text(encoding="utf-8")))
            for path in sorted(_ROOT.iterdir(), key=lambda p: p.name) if path.name.endswith(".toml") and path.name != _SCALED}


@functools.cache
def measured_devices() -> Mapping[str, tuple[str, ...]]:
    """Catalogue names of the devices that each set of curves was measured on, or that carry the same chip at the same power."""
    return {name: (_data(name)["device"], *_data(name)["same_chip"]) for name in measured_curves()}


@functools.cache
def _measured_by_device() -> Mapping[str, DeviceCurves]:
    return {device: measured_curves()[name] for name, devices in measured_devices().items() for device in devices}


@functools.cache
def _scaled() -> Mapping[str, DeviceCurves]:
    body = _data(_SCALED.removesuffix(".toml"))
    return {f"{table}.{name}": _scaled_curves(given) for table in ("device", "arch") for name, given in body[table].items()}


def _data(name: str) -> dict[str, Any]:
    return tomllib.loads((_ROOT / f"{name}.toml").read_text(encoding="utf-8"))


def _scaled_curves(given: Mapping[str, Any]) -> DeviceCurves:
    """The shape of `like`, its compute shares times `compute`, on `sms` multiprocessors."""
    like, by = measured_curves()[given["like"]], given.get("compute", 1.0)
    gemm = {kind: replace(curve, compute=curve.compute * by, fit=None) for kind, curve in like.gemm.items()}
    attention = replace(like.attention, forward=like.attention.forward * by, fit=None)
    return replace(like, measured=False, sms=given.get("sms", like.sms), gemm=gemm, attention=attention, elementwise=None,
                   expected_error=given["expected_error"], source=given["source"])


def _curves(name: str, body: Mapping[str, Any]) -> DeviceCurves:
    gemm = {kind: GemmCurve(**_in_seconds(given)) for kind, given in body["gemm"].items()}
    elementwise = _elementwise(body)
    against = _elementwise(_data(body["elementwise_against"])) if "elementwise_against" in body else None
    return DeviceCurves(name=name, measured=True, sms=body["sms"], gemm=gemm, attention=AttentionCurve(**_in_seconds(body["attention"])),
                        elementwise=elementwise, elementwise_gain=elementwise.share / against.share if elementwise and against else 1.0,
                        source=body["source"])


def _elementwise(body: Mapping[str, Any]) -> ElementwiseCurve | None:
    return ElementwiseCurve(**_in_seconds(body["elementwise"])) if "elementwise" in body else None


def _in_seconds(given: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a block: microseconds become seconds, the fit a record."""
    body = {(key.removesuffix("_us") + "_s" if key.endswith("_us") else key): (seconds_from_us(value) if key.endswith("_us") else value)
            for key, value in given.items() if key != "fit"}
    return {**body, "fit": Fit(**given["fit"]) if "fit" in given else None}
