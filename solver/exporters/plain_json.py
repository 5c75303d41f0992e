"""Plain JSON: the plan, the problem it answers and the rank table in one file, for launchers of one's own."""
import json
from dataclasses import asdict

from solver.domain.estimate import Reason
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.exporters.files import ExportedFile
from solver.exporters.ranks import rank_places

FORMAT = "shardwright-plan-1"


def reasons_against(problem: Problem, plan: Plan) -> tuple[Reason, ...]:
    """Nothing: every plan has this form."""
    del problem, plan
    return ()


def files(problem: Problem, plan: Plan) -> tuple[ExportedFile, ...]:
    """One file, `plan.json`. `problem_sha256` is the fingerprint of the problem; `hosts` are in rank order."""
    places = rank_places(problem, plan)
    body = {
        "format": FORMAT,
        "problem_sha256": problem.fingerprint(),
        "problem": asdict(problem),
        "plan": asdict(plan),
        "hosts": list(dict.fromkeys(p.host for p in places)),
        "ranks": [asdict(p) for p in places],
    }
    return (ExportedFile(name="plan.json", media_type="application/json", text=json.dumps(body, indent=1) + "\n"),)
