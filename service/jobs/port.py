"""What the service needs of the library: one small protocol, so that tests can put a planner of their own in its place."""
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from solver.domain.estimate import Estimate, Reason
from solver.domain.options import Constraints, Objective, SearchOptions
from solver.domain.plan import Plan, Versions
from solver.domain.problem import Problem
from solver.domain.request import EstimateRequest, ObservationRequest, PlanRequest
from solver.search.result import Cancelled, Report, SearchResult

if TYPE_CHECKING:
    from solver.cost.fitting import Fitted
    from solver.cost.observation import Run


class Planner(Protocol):
    """Implementations are picklable: solver processes get a copy."""

    def load(self) -> None:
        """Import what answering needs; called once in each answering process, so that no request has to wait for it."""

    def warm(self) -> None:
        """Import what is slow to import; called once in each solver process."""

    def versions(self) -> Versions:
        """Versions of everything that answers depend on."""

    def problem(self, request: PlanRequest | EstimateRequest) -> Problem:
        """Resolve all names; raises `InputError` with every fault."""

    def estimate(self, problem: Problem, request: EstimateRequest) -> Estimate:
        """Price the layout of a request."""

    def search(self, problem: Problem, objective: Objective, constraints: Constraints, options: SearchOptions,
               report: Report, cancelled: Cancelled) -> SearchResult:
        """Find the best layout."""

    def judge(self, problem: Problem, plan: Plan, predicted: Estimate, constraints: Constraints) -> tuple[Reason, ...]:
        """Every rule that an answer breaks: empty for a good one."""

    def run(self, request: ObservationRequest) -> "Run":
        """A measured run, priced; raises `InputError` where its layout has no price."""

    def refuse_absurd(self, run: "Run", others: "Sequence[Run]") -> None:
        """Raise `InputError` where what was measured cannot be, or does not belong to the other runs."""

    def fitted(self, runs: "Sequence[Run]", set_name: str) -> "Fitted":
        """The calibration that the runs of a set speak for, with its account."""
