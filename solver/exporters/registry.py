"""The launchers that plans can be written for, listed once."""
from solver.domain.estimate import Reason
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.errors import ExportError, Fault, UnknownName
from solver.exporters import megatron, plain_json
from solver.exporters.files import ExportedFile, Exporter

EXPORTERS: dict[str, Exporter] = {
    "json": Exporter(title="Plain JSON with the rank table", written_for=plain_json.FORMAT,
                     reasons_against=plain_json.reasons_against, files=plain_json.files),
    "megatron": Exporter(title="Megatron-LM launch script", written_for=megatron.WRITTEN_FOR,
                         reasons_against=megatron.reasons_against, files=megatron.files),
}


def exporter(target: str) -> Exporter:
    """The exporter of that name; `UnknownName` lists those there are."""
    if target not in EXPORTERS:
        raise UnknownName(Fault(pointer="/target", message=f"{target[:80]!r} is no export target", legal=", ".join(EXPORTERS)))
    return EXPORTERS[target]


def reasons_against(target: str, problem: Problem, plan: Plan) -> tuple[Reason, ...]:
    """Why that launcher cannot run the plan; empty where it can."""
    return exporter(target).reasons_against(problem, plan)


def export(target: str, problem: Problem, plan: Plan) -> tuple[ExportedFile, ...]:
    """The files for that launcher. `ExportError` where it cannot run the plan, with every reason and what would be expressible."""
    chosen = exporter(target)
    reasons = chosen.reasons_against(problem, plan)
    if reasons:
        said = "; ".join(r.message + (f" ({r.fix})" if r.fix else "") for r in reasons)
        raise ExportError(f"{chosen.title} ({chosen.written_for}) cannot express this plan: {said}")
    return chosen.files(problem, plan)
