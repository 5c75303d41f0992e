"""Context parallelism: each sequence cut over c GPUs, by ring attention, by Ulysses all-to-alls, or by both."""
from functools import lru_cache

from solver.axes.divisors import divisors, nearest_divisor
from solver.domain.estimate import Reason
from solver.domain.identity import Same
from solver.domain.layout import Layout, unlike_stages
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload

NAME = "context"
PROBLEMS_KEPT = 32


def legal_degrees(problem: Problem) -> tuple[int, ...]:
    """1, and every c with 2 c dividing the sequence (each rank takes an early and a late chunk, so that causal work is even), up to the cluster's
    size."""
    return _legal(Same(problem))


@lru_cache(maxsize=PROBLEMS_KEPT)
def _legal(key: Same[Problem]) -> tuple[int, ...]:
    workload, gpus = key.value.workload, key.value.cluster.gpus
    if not isinstance(workload, TrainingWorkload):
        return (1,)
    seq_len = workload.seq_len
    return tuple(c for c in divisors(seq_len) if c <= gpus and (c == 1 or seq_len % (2 * c) == 0))


def violations(problem: Problem, layout: Layout) -> tuple[Reason, ...]:
    """Sequence length, Ulysses degree and equal degrees in all stages."""
    if not isinstance(problem.workload, TrainingWorkload):
        return ()
    found: list[Reason] = []
    seq_len = problem.workload.seq_len
    degrees = {stage.cp for stage in layout.stages}
    if len(degrees) > 1:
        found.append(Reason(code="context.mixed", message=f"stages have cp {', '.join(map(str, sorted(degrees)))}",
                            fix=f"cp {min(degrees)} in every stage"))
    for i, stage in unlike_stages(layout):
        if stage.cp > 1 and seq_len % (2 * stage.cp):
            legal = [c for c in legal_degrees(problem) if c <= stage.cp]
            found.append(Reason(code="context.length", stage=i, message=f"sequence length {seq_len} does not divide by 2 x cp {stage.cp}",
                                fix=f"cp {max(legal)}"))
        if stage.cp % layout.ulysses:
            found.append(Reason(code="context.ulysses", stage=i, message=f"Ulysses degree {layout.ulysses} does not divide cp {stage.cp}",
                                fix=f"ulysses {nearest_divisor(stage.cp, layout.ulysses)}"))
        heads = problem.model.num_attention_heads
        if layout.ulysses > 1 and heads % (stage.tp * layout.ulysses):
            found.append(Reason(code="context.ulysses_heads", stage=i, fix=f"ulysses {nearest_divisor(max(1, heads // stage.tp), layout.ulysses)}",
                                message=f"{heads} heads do not divide over tp {stage.tp} x Ulysses degree {layout.ulysses}"))
    return tuple(found)
