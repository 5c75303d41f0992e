"""Recomputation of activations, per stage."""
from solver.domain.degrees import RECOMPUTE_MODES, Framework
from solver.domain.estimate import Reason
from solver.domain.layout import Layout
from solver.domain.problem import Problem

NAME = "recompute"
ONE_MODE_FOR_ALL: tuple[Framework, ...] = ("megatron", "megatron_deepspeed")     # launchers with one setting for every stage


def legal_degrees(problem: Problem) -> tuple[int, ...]:
    """Indices of the modes, from none to full."""
    del problem
    return tuple(range(len(RECOMPUTE_MODES)))


def violations(problem: Problem, layout: Layout) -> tuple[Reason, ...]:
    """Some launchers have one mode for all stages."""
    del problem
    modes = {stage.recompute for stage in layout.stages}
    if len(modes) > 1 and layout.framework in ONE_MODE_FOR_ALL:
        heaviest = max(modes, key=RECOMPUTE_MODES.index)
        return (Reason(code="recompute.mixed", message=f"{layout.framework} has one recompute mode for all stages, not {', '.join(sorted(modes))}",
                       fix=f"recompute {heaviest} in every stage, or no framework named"),)
    return ()
