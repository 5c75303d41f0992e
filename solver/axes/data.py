"""Data parallelism: replicas, the split of a micro-batch inside a stage, ZeRO."""
from solver.axes.divisors import divisors, nearest_divisor
from solver.domain.estimate import Reason
from solver.domain.layout import Layout, unlike_stages
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload

NAME = "data"


def legal_degrees(problem: Problem) -> tuple[int, ...]:
    """Numbers of replicas: divisors of the global batch, up to the cluster's size."""
    if not isinstance(problem.workload, TrainingWorkload):
        return (1,)
    return tuple(d for d in divisors(problem.workload.global_batch_size) if d <= problem.cluster.gpus)


def violations(problem: Problem, layout: Layout) -> tuple[Reason, ...]:
    """The global batch is the sum of all micro-batches; widths divide the micro-batch; ZeRO alike in all stages, beyond 1 only in alike stages.

    A pipeline among unlike ones takes a share of the batch: the plan's rules look at their sum.
    """
    found: list[Reason] = []
    if isinstance(problem.workload, TrainingWorkload) and layout.stages[0].holders is None:
        batch, done = problem.workload.global_batch_size, layout.replicas * layout.micro_batches * layout.micro_batch_size
        if batch != done:
            found.append(Reason(code="data.batch_indivisible", fix=f"a product of {batch}",
                                message=f"{layout.replicas} pipelines x {layout.micro_batches} micro-batches x {layout.micro_batch_size} sequences "
                                        f"= {done}, the global batch is {batch}"))
    for i, stage in unlike_stages(layout):
        if layout.micro_batch_size % stage.dp:
            found.append(Reason(code="data.width", stage=i, fix=f"dp {nearest_divisor(layout.micro_batch_size, stage.dp)} in stage {i}",
                                message=f"micro-batches of {layout.micro_batch_size} sequences do not divide over the stage's dp {stage.dp}"))
    stages = {stage.zero_stage for stage in layout.stages}
    if len(stages) > 1:
        found.append(Reason(code="data.zero_mixed", message=f"stages have zero_stage {', '.join(map(str, sorted(stages)))}",
                            fix=f"zero_stage {min(stages)} in every stage"))
    elif max(stages) >= 2 and len({(stage.tp, stage.dp) for stage in layout.stages}) > 1:
        found.append(Reason(code="data.zero_unlike", message=f"zero_stage {max(stages)} with stages that differ in tp or dp",
                            fix="zero_stage 1, or the same tp and dp in every stage: launchers of unlike stages shard optimizer states at most"))
    return tuple(found)
