"""What every exporter is: why it would refuse, and the files it writes. Pure functions of problem and plan."""
from collections.abc import Callable
from dataclasses import dataclass

from solver.domain.estimate import Reason
from solver.domain.plan import Plan
from solver.domain.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file of an export. `name` is a plain file name."""

    name: str
    media_type: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """A launcher that plans can be written for. `files` may be called only where `reasons_against` is empty."""

    title: str
    written_for: str                                       # the version of the launcher whose source the writer follows
    reasons_against: Callable[[Problem, Plan], tuple[Reason, ...]]
    files: Callable[[Problem, Plan], tuple[ExportedFile, ...]]
