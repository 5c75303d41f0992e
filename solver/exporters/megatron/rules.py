"""What Megatron-LM cannot run of a plan, with the reason and the nearest change. Here: the shape of the plan.

Rules of one set of degrees are in degree_rules, those of the model and the workload in model_rules.
"""
from collections.abc import Iterator

from solver.domain.estimate import Reason
from solver.domain.launchers import LAUNCHERS
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.exporters.megatron.degree_rules import DEGREE_RULES, Rule
from solver.exporters.megatron.model_rules import MODEL_RULES
from solver.exporters.megatron.reasons import CONSTRAIN, broken


def reasons_against(problem: Problem, plan: Plan) -> tuple[Reason, ...]:
    """Every rule of the launcher that the plan breaks. Rules that build on equal stages are judged only where stages are equal."""
    found = [reason for rule in MODEL_RULES for reason in rule(problem)]
    found += [reason for rule in _SHAPE_RULES for reason in rule(problem, plan)]
    if not any(r.code in _UNEQUAL for r in found):
        found += [reason for rule in DEGREE_RULES for reason in rule(problem, plan)]
    return tuple(found)


def _equal_pipelines(problem: Problem, plan: Plan) -> Iterator[Reason]:
    depths = sorted({len(p.stages) for p in plan.pipelines})
    if len(depths) > 1:
        yield broken("unequal_pipelines", f"pipelines have {_listed(depths)} stages; Megatron-LM runs equal pipelines", CONSTRAIN)
        return
    shares = sorted({p.micro_batches for p in plan.pipelines})
    if len(shares) > 1:
        yield broken("unequal_pipelines", f"pipelines take {_listed(shares)} micro-batches; Megatron-LM gives each the same number", CONSTRAIN)
    for stage in range(depths[0]):
        if len({p.stages[stage].layers for p in plan.pipelines}) > 1:
            yield broken("unequal_pipelines", f"stage {stage} holds different layers in different pipelines", CONSTRAIN, stage=stage)


def _equal_degrees(problem: Problem, plan: Plan) -> Iterator[Reason]:
    stages = [s for p in plan.pipelines for s in p.stages]
    for name in ("tp", "cp", "dp", "ep", "etp"):
        values = sorted({getattr(s, name) for s in stages})
        if len(values) > 1:
            yield broken("unequal_degrees", f"stages have {name} {_listed(values)}; Megatron-LM has one {name} for all", CONSTRAIN)
    for name, code in (("recompute", "mixed_recompute"), ("zero_stage", "mixed_zero")):
        modes = sorted({str(getattr(s, name)) for s in stages})
        if len(modes) > 1:
            yield broken(code, f"stages have {name} {_listed(modes)}; Megatron-LM has one setting for all", CONSTRAIN)


def _modes(problem: Problem, plan: Plan) -> Iterator[Reason]:
    stages = [s for p in plan.pipelines for s in p.stages]
    zero = max(s.zero_stage for s in stages)
    if zero not in LAUNCHERS["megatron"].zero_stages:
        yield broken("zero_stage", f"ZeRO stage {zero} is not the distributed optimizer of Megatron-LM, which is stage 1", '"zero_stage": 1')
    if any(s.recompute == "partial" for s in stages):
        yield broken("recompute", "Megatron-LM has no module list that recomputes norms, activation and first FFN matrix alone",
                     '"recompute": "selective" or "full"')
    if plan.offload:
        yield broken("offload", f"activation offload of {plan.offload:g} has no equal in whole layers", '"offload": null')
    if plan.slices not in (None, 1):
        yield broken("slices", f"{plan.slices} slices per sequence", '"slices": null')
    if plan.pipeline_vocabulary:
        yield broken("pipeline_vocabulary", "embedding and output weights cannot be split over the pipeline", '"pipeline_vocabulary": false')
    if not plan.vocabulary_parallel_loss and stages[0].tp > 1:
        yield broken("vocabulary_parallel_loss", "Megatron-LM always splits the logits over tensor parallel ranks",
                     '"vocabulary_parallel_loss": true')


def _schedule(problem: Problem, plan: Plan) -> Iterator[Reason]:
    pp, virtual = len(plan.pipelines[0].stages), plan.virtual_stages
    if plan.schedule not in ("1f1b", "interleaved"):
        yield broken("schedule", f"schedule {plan.schedule} is not one of Megatron-LM's", '"schedule": "1f1b" or "interleaved"')
        return
    if plan.schedule == "1f1b" and virtual > 1:
        yield broken("schedule", f"{virtual} virtual stages make Megatron-LM's schedule the interleaved one", '"schedule": "interleaved"')
    if plan.schedule == "interleaved" and virtual > 1:
        if pp == 1:
            yield broken("virtual_stages", "virtual stages need more than one pipeline stage", '"virtual_stages": 1')
        for count in sorted({p.micro_batches for p in plan.pipelines}):
            if count % pp:
                nearest = max(count // pp, 1) * pp
                yield broken("interleaved_micro_batches", f"{count} micro-batches are no multiple of {pp} stages", f"{nearest} micro-batches")


def _layer_order(problem: Problem, plan: Plan) -> Iterator[Reason]:
    for index, stage in ((i, s) for p in plan.pipelines for i, s in enumerate(p.stages)):
        if len(stage.layers) != plan.virtual_stages:
            yield broken("layer_order", f"{len(stage.layers)} layer ranges for {plan.virtual_stages} virtual stages",
                         "one range per virtual stage", stage=index)
            return
    for pipeline in plan.pipelines:
        ranges = [stage.layers[v] for v in range(plan.virtual_stages) for stage in pipeline.stages]
        next_layer = 0
        for first, last in ranges:
            if first != next_layer or last < first:
                yield broken("layer_order", f"layers {first} to {last} stand where layer {next_layer} comes next",
                             "chunks in model order: virtual stage by virtual stage, each over all stages")
                return
            next_layer = last + 1
        if next_layer != problem.model.num_layers:
            yield broken("layer_order", f"the plan holds {next_layer} of {problem.model.num_layers} layers",
                         f"layers 0 to {problem.model.num_layers - 1}")
            return


def _listed(values: list[int] | list[str]) -> str:
    return " and ".join(str(v) for v in values)


_UNEQUAL = ("launcher.unequal_pipelines", "launcher.unequal_degrees", "launcher.layer_order")
_SHAPE_RULES: tuple[Rule, ...] = (_equal_pipelines, _equal_degrees, _modes, _schedule, _layer_order)
