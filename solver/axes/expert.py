"""Expert parallelism: the experts of a layer over ep groups of etp GPUs, inside tp * cp * dp."""
from solver.axes.divisors import divisors, nearest_divisor
from solver.domain.estimate import Reason
from solver.domain.layout import Layout, unlike_stages
from solver.domain.problem import Problem

NAME = "expert"


def legal_degrees(problem: Problem) -> tuple[int, ...]:
    """Divisors of the number of experts; 1 for models without."""
    return divisors(problem.model.moe.num_experts) if problem.model.moe is not None else (1,)


def violations(problem: Problem, layout: Layout) -> tuple[Reason, ...]:
    """Experts, expert width and the ranks that they shard over."""
    moe, found = problem.model.moe, []
    degrees = {(stage.ep, stage.etp) for stage in layout.stages}
    if len(degrees) > 1:
        found.append(Reason(code="expert.mixed", message=f"stages have (ep, etp) {sorted(degrees)}",
                            fix=f"ep {min(degrees)[0]}, etp {min(degrees)[1]} in every stage"))
    for i, stage in unlike_stages(layout):
        if moe is None:
            if stage.ep > 1 or stage.etp > 1:
                found.append(Reason(code="expert.no_experts", stage=i, message=f"ep {stage.ep}, etp {stage.etp}, but the model has no experts",
                                    fix="ep 1, etp 1"))
            continue
        ranks, experts = stage.tp * stage.cp * stage.dp * layout.replicas, moe.num_experts
        if experts % stage.ep:
            found.append(Reason(code="expert.divides", stage=i, message=f"{experts} experts do not divide by ep {stage.ep}",
                                fix=f"ep {nearest_divisor(experts, stage.ep)}"))
        if ranks % (stage.ep * stage.etp):
            found.append(Reason(code="expert.ranks", stage=i, fix=f"ep {nearest_divisor(max(1, ranks // stage.etp), stage.ep)}",
                                message=f"ep {stage.ep} x etp {stage.etp} does not divide the {ranks} ranks of tp x cp x dp"))
        if stage.tp % stage.etp:
            found.append(Reason(code="expert.tensor", stage=i, message=f"etp {stage.etp} does not divide tp {stage.tp}",
                                fix=f"etp {nearest_divisor(stage.tp, stage.etp)}"))
        if moe.expert_ffn_hidden_size % stage.etp:
            found.append(Reason(code="expert.width", stage=i, fix=f"etp {nearest_divisor(moe.expert_ffn_hidden_size, stage.etp)}",
                                message=f"expert width {moe.expert_ffn_hidden_size} does not divide by etp {stage.etp}"))
    return tuple(found)
