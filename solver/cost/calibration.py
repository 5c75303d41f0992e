"""Calibration: which constants of the cost model observed runs may move, and how."""
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from solver.catalog.efficiency import Efficiency
from solver.domain.calibration import Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A multiplier with a prior at 1: log-normal with standard deviation `sigma`, cut at `lowest` and `highest`."""

    name: str
    sigma: float
    lowest: float
    highest: float
    apply: Callable[[Efficiency, float], Efficiency]


def _elementwise(constants: Efficiency, by: float) -> Efficiency:
    """Bytes that norms, residuals and activation functions move: stands for kernel fusion."""
    archs = {name: replace(arch, elementwise_share=arch.elementwise_share / by) for name, arch in constants.archs.items()}
    return replace(constants, archs=archs)


def _network(constants: Efficiency, by: float) -> Efficiency:
    """Share of the stated bandwidth between nodes that collectives achieve."""
    communication = replace(constants.communication, network_share=constants.communication.network_share * by)
    return replace(constants, communication=communication)


COEFFICIENTS: tuple[Coefficient, ...] = (
    Coefficient(name="elementwise", sigma=0.3, lowest=0.4, highest=2.5, apply=_elementwise),
    Coefficient(name="network", sigma=2.5, lowest=0.03, highest=1.2, apply=_network),
)


def calibrated(constants: Efficiency, calibration: Calibration) -> Efficiency:
    """The constants with every coefficient of a calibration applied; unknown names are ignored, as a later version may know fewer."""
    given: Mapping[str, float] = dict(calibration.coefficients)
    for coefficient in COEFFICIENTS:
        if coefficient.name in given:
            constants = coefficient.apply(constants, given[coefficient.name])
    return constants
