"""The requests in `examples/`, resolved."""
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from solver.domain.problem import Problem
from solver.domain.request import PlanRequest
from solver.importers.request import problem_of

DIRECTORY = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example with its problem."""

    name: str
    request: PlanRequest
    problem: Problem


def examples() -> Iterator[Example]:
    for path in sorted(DIRECTORY.glob("*.json")):
        request = TypeAdapter(PlanRequest).validate_json(path.read_bytes())
        yield Example(name=path.stem, request=request,
                      problem=problem_of(request.model, request.cluster, request.workload, request.constraints.memory_margin))
