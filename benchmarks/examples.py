"""The requests in `examples/`, resolved."""
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from solver.domain.degrees import Strategy
from solver.domain.problem import Problem
from solver.domain.request import PlanRequest
from solver.domain.workload import TrainingWorkload
from solver.importers.request import problem_of

DIRECTORY = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example with its problem."""

    name: str
    request: PlanRequest
    problem: Problem

    def strategy(self) -> Strategy:
        """A plain layout to price: tensor parallel over a node, as many stages as leave a data parallel degree that divides the batch."""
        gpus, work = self.problem.cluster.gpus, self.problem.workload
        tp = min(8, min(g.gpus_per_node for g in self.problem.cluster.node_groups), self.problem.model.kv_heads)
        batch = work.global_batch_size if isinstance(work, TrainingWorkload) else 1
        groups = gpus // tp
        pp = next(p for p in range(1, groups + 1) if groups % p == 0 and batch % (groups // p) == 0)
        return Strategy(tp=tp, pp=pp, dp=groups // pp, sequence_parallel=tp > 1)


def examples() -> Iterator[Example]:
    for path in sorted(DIRECTORY.glob("*.json")):
        request = TypeAdapter(PlanRequest).validate_json(path.read_bytes())
        yield Example(name=path.stem, request=request,
                      problem=problem_of(request.model, request.cluster, request.workload, request.constraints.memory_margin))
