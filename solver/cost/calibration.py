"""Calibration: which constants of the cost model observed runs may move, and how."""
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from solver.catalog.efficiency import Efficiency
from solver.domain.calibration import Calibration
from solver.errors import Fault, InputError

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A multiplier with a prior at 1: log-normal with standard deviation `sigma`, cut at `lowest` and `highest`.

    inverse: times are affine in 1 / multiplier (a speed) instead of in the multiplier (work), apart from where terms hide each other.
    """

    name: str
    meaning: str                                           # what is multiplied, in plain words
    sigma: float
    lowest: float
    highest: float
    apply: Callable[[Efficiency, float], Efficiency]
    inverse: bool = False

    def allows(self, by: float) -> bool:
        return self.lowest * (1.0 - ROUNDING) <= by <= self.highest * (1.0 + ROUNDING)


def _network(constants: Efficiency, by: float) -> Efficiency:
    communication = replace(constants.communication, network_share=constants.communication.network_share * by)
    return replace(constants, communication=communication)


def _compute(constants: Efficiency, by: float) -> Efficiency:
    archs = {name: replace(arch, sustained=arch.sustained / by) for name, arch in constants.archs.items()}
    devices = {name: replace(device, sustained=device.sustained / by) for name, device in constants.devices.items()}
    return replace(constants, archs=archs, devices=devices, compute=replace(constants.compute, fp32_share=constants.compute.fp32_share / by))


def _tensor(constants: Efficiency, by: float) -> Efficiency:
    communication = replace(constants.communication, tensor_contention=constants.communication.tensor_contention * by)
    return replace(constants, communication=communication)


def _edges(constants: Efficiency, by: float) -> Efficiency:
    return replace(constants, communication=replace(constants.communication, edge_bytes=constants.communication.edge_bytes * by))


def _memory(constants: Efficiency, by: float) -> Efficiency:
    return replace(constants, memory=replace(constants.memory, held=constants.memory.held * by))


TIMES: tuple[Coefficient, ...] = (
    Coefficient(name="network", meaning="bandwidth between nodes that communication achieves", sigma=2.5, lowest=0.03, highest=1.05, inverse=True,
                apply=_network),
    Coefficient(name="compute", meaning="time of matrix products: clocks and libraries", sigma=0.08, lowest=0.7, highest=1.4, apply=_compute),
    Coefficient(name="tensor", meaning="time of tensor-parallel communication, beside computation", sigma=0.2, lowest=0.5, highest=2.0,
                apply=_tensor),
    Coefficient(name="edges", meaning="bytes between pipeline stages: whether a stack scatters them over tensor-parallel GPUs", sigma=1.5, lowest=0.1,
                highest=8.0, apply=_edges),
)
MEMORY: tuple[Coefficient, ...] = (
    Coefficient(name="memory", meaning="bytes of activations and working buffers that the allocator holds", sigma=0.2, lowest=0.4, highest=2.5,
                apply=_memory),
)
COEFFICIENTS: tuple[Coefficient, ...] = TIMES + MEMORY


def checked(calibration: Calibration) -> Calibration:
    """The calibration; raises `InputError` where a multiplier is beyond what a fit could have found."""
    known = {c.name: c for c in COEFFICIENTS}
    faults = [Fault(pointer=f"/coefficients/{i}/1", message=f"{name} times {by:g}", legal=f"{known[name].lowest:g} to {known[name].highest:g}")
              for i, (name, by) in enumerate(calibration.coefficients) if name in known and not known[name].allows(by)]
    if faults:
        raise InputError(*faults)
    return calibration


def calibrated(constants: Efficiency, calibration: Calibration) -> Efficiency:
    """The constants with every coefficient of a calibration applied; unknown names are ignored, as a later version may know fewer."""
    given: Mapping[str, float] = dict(calibration.coefficients)
    for coefficient in COEFFICIENTS:
        if coefficient.name in given:
            constants = coefficient.apply(constants, given[coefficient.name])
    return constants
