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
    unpriced = "is not priced: times and memory are those without it"
    whole = "is not priced: embedding and output layer count whole on their stages"
    named = (
        (f"slices {layout.slices}", layout.slices is not None and layout.slices > 1, unpriced, "slices left out"),
        (f"offload {layout.offload}", bool(layout.offload), unpriced, "offload left out"),
        ("pipeline_vocabulary true", layout.pipeline_vocabulary, whole, "pipeline_vocabulary false"),
        (f"shard_group {layout.shard_group}", layout.shard_group is not None, "is priced in memory alone", "shard_group left out"),
    )
    return tuple(Reason(code="lever.preview", message=f"{lever} {effect}; this version neither plans nor exports it", fix=fix)
                 for lever, used, effect, fix in named if used)
