"""The parallel dimensions, listed once."""
from collections.abc import Callable
from dataclasses import dataclass

from solver.axes import context, data, expert, levers, pipeline, recompute, sequence, tensor
from solver.domain.estimate import Reason
from solver.domain.layout import Layout
from solver.domain.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One dimension: the degrees that it may take for a problem, and the rules that a layout breaks in it."""

    name: str
    legal_degrees: Callable[[Problem], tuple[int, ...]]
    violations: Callable[[Problem, Layout], tuple[Reason, ...]]


AXES: tuple[Axis, ...] = tuple(
    Axis(name=module.NAME, legal_degrees=module.legal_degrees, violations=module.violations)
    for module in (tensor, sequence, context, pipeline, data, expert, recompute, levers)
)


def violations(problem: Problem, layout: Layout) -> tuple[Reason, ...]:
    """Every rule that a layout breaks, axis by axis; one that all stages break alike is told once, at the first of them."""
    found: dict[tuple[str, str], Reason] = {}
    for axis in AXES:
        for reason in axis.violations(problem, layout):
            found.setdefault((reason.code, reason.message), reason)
    return tuple(found.values())
