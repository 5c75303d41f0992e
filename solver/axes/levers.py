"""Levers that a request may name and that this version neither plans nor exports."""
from solver.domain.estimate import Reason
from solver.domain.layout import Layout
from solver.domain.problem import Problem

NAME = "levers"


def legal_degrees(problem: Problem) -> tuple[int, ...]:
    """All off."""
    del problem
    return (0,)


def violations(problem: Problem, layout: Layout) -> tuple[Reason, ...]:
    """One reason per lever in use, saying whether the price counts it."""
    del problem
    named = (
        ("slices", layout.slices is not None and layout.slices > 1, "is not priced: times and memory are those without it", "slices left out"),
        ("offload", bool(layout.offload), "is not priced: times and memory are those without it", "offload left out"),
        ("pipeline_vocabulary", layout.pipeline_vocabulary, "is not priced: embedding and output layer count whole on their stages", "pipeline_vocabulary false"),
        ("shard_group", layout.shard_group is not None, "is priced in memory alone", "shard_group left out"),
    )
    return tuple(Reason(code="lever.preview", message=f"{name} {effect}; this version neither plans nor exports it", fix=fix) for name, used, effect, fix in named if used)
