"""Sequence parallelism: the parts outside tensor-parallel blocks cut along the sequence over the same t GPUs."""
import math

from solver.domain.estimate import Reason
from solver.domain.layout import Layout, unlike_stages
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload

NAME = "sequence"


def legal_degrees(problem: Problem) -> tuple[int, ...]:
    """0: off, 1: on."""
    del problem
    return (0, 1)


def violations(problem: Problem, layout: Layout) -> tuple[Reason, ...]:
    """The sequence must divide evenly over the tensor ranks, behind the context split; no effect at tp 1."""
    if not layout.sequence_parallel or not isinstance(problem.workload, TrainingWorkload):
        return ()
    seq_len, found = problem.workload.seq_len, []
    for i, stage in unlike_stages(layout):
        need = stage.cp * (math.lcm(2, stage.tp) if stage.cp > 1 else stage.tp)
        if stage.tp > 1 and seq_len % need:
            found.append(Reason(code="sequence.length", stage=i, fix=f"a sequence length of {-(-seq_len // need) * need}, or sequence_parallel false",
                                message=f"sequence length {seq_len} does not divide by {need} (tp {stage.tp}, cp {stage.cp})"))
    return tuple(found)
