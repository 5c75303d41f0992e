"""Stored plans as launcher files and timelines: the library's exporters, imported when first needed."""
from typing import Any

from solver.domain.estimate import Reason
from solver.domain.plan import Plan
from solver.domain.problem import Problem


def names() -> list[str]:
    from solver.exporters.registry import EXPORTERS

    return sorted(EXPORTERS)


def targets(problem: Problem, plan: Plan) -> dict[str, tuple[Reason, ...]]:
    """Every target with what speaks against it: nothing where it can run the plan."""
    from solver.exporters.registry import EXPORTERS, reasons_against

    return {target: tuple(reasons_against(target, problem, plan)) for target in EXPORTERS}


def files(target: str, problem: Problem, plan: Plan) -> tuple[Any, ...]:
    """The files of a target, each with name, media_type and text. Raises `ExportError`."""
    from solver.exporters.registry import export

    return tuple(export(target, problem, plan))


def timeline(problem: Problem, plan: Plan) -> Any:
    """The pipeline as Chrome trace events."""
    from solver.cost.timeline import timeline as chrome_trace

    return chrome_trace(problem, plan)
