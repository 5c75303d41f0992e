"""Pipeline parallelism: layers over stages, virtual stages, schedules."""
from solver.axes.divisors import divisors
from solver.domain.degrees import PLANNED_SCHEDULES, ScheduleName
from solver.domain.estimate import Reason
from solver.domain.layout import Layout
from solver.domain.problem import Problem

NAME = "pipeline"
UNAVAILABLE: tuple[ScheduleName, ...] = ("stp", "slimpipe", "solver")      # neither planned nor priced by this version


def legal_degrees(problem: Problem) -> tuple[int, ...]:
    """1 to the number of layers."""
    return tuple(range(1, min(problem.model.num_layers, problem.cluster.gpus) + 1))


def violations(problem: Problem, layout: Layout) -> tuple[Reason, ...]:
    """Layers placed once each and in order, virtual stages as their schedule needs them, schedules that this version plans."""
    return (*_schedule(layout), *_layers(problem, layout), *_virtual_stages(problem, layout))


def _schedule(layout: Layout) -> list[Reason]:
    name, planned = layout.schedule, ", ".join(PLANNED_SCHEDULES)
    if name in UNAVAILABLE:
        return [Reason(code="schedule.unavailable", message=f"schedule {name} is not priced by this version", fix=f"one of {planned}")]
    if name not in PLANNED_SCHEDULES:
        return [Reason(code="schedule.preview", message=f"schedule {name} is priced by a closed form, neither planned nor exported by this version",
                       fix=f"one of {planned}")]
    return []


def _layers(problem: Problem, layout: Layout) -> list[Reason]:
    layers, expected = problem.model.num_layers, 0
    if layout.pp > layers:
        return [Reason(code="pipeline.too_many_stages", message=f"{layout.pp} stages for {layers} layers", fix=f"pp of at most {layers}")]
    for chunk in range(max(len(stage.layers) for stage in layout.stages)):
        for i, stage in enumerate(layout.stages):
            if chunk >= len(stage.layers):
                continue
            first, last = stage.layers[chunk]
            if last < first:
                return [Reason(code="pipeline.empty_stage", stage=i, message=f"stage {i} holds no layers in [{first}, {last}]",
                               fix="at least one layer in every stage")]
            if first != expected:
                what = f"layer {expected} is missing" if first > expected else f"layer {first} stands twice"
                return [Reason(code="pipeline.layers_missing", stage=i,
                               message=f"{what}: stage {i} begins with layer {first}, layer {expected} is next",
                               fix=f"a range that begins with {expected}")]
            expected = last + 1
    if expected != layers:
        return [Reason(code="pipeline.layers_missing", message=f"the stages end with layer {expected - 1}, the model has layers 0 to {layers - 1}",
                       fix=f"a last range that ends with {layers - 1}")]
    return []


def _virtual_stages(problem: Problem, layout: Layout) -> list[Reason]:
    v, p, m, found = layout.virtual_stages, layout.pp, layout.micro_batches, []
    if layout.schedule != "interleaved":
        if v > 1:
            found.append(Reason(code="pipeline.virtual_stages", message=f"schedule {layout.schedule} has no virtual stages, {v} are asked for",
                                fix="schedule interleaved, or virtual_stages 1"))
        return found
    if v < 2 or p < 2:
        found.append(Reason(code="pipeline.interleaved",
                            message=f"schedule interleaved needs at least 2 stages and 2 virtual stages, not {p} and {v}", fix="schedule 1f1b"))
    if problem.model.encoder_layers:
        found.append(Reason(code="pipeline.interleaved_encoder", fix="schedule 1f1b with virtual_stages 1",
                            message="virtual stages would send the encoder's output round the pipeline more than once: no launcher does"))
    if m % p:
        found.append(Reason(code="pipeline.interleaved_micro_batches", message=f"{m} micro-batches do not divide into rounds of {p} stages",
                            fix=_round_fix(problem, layout)))
    sizes = {last - first + 1 for stage in layout.stages for first, last in stage.layers}
    for i, stage in enumerate(layout.stages):
        if stage.num_layers % v or len({last - first for first, last in stage.layers}) > 1:
            found.append(Reason(code="pipeline.chunks_uneven", stage=i, fix=f"layers per stage that divide by {v}",
                                message=f"the {stage.num_layers} layers of stage {i} are not {v} equal virtual stages (sizes {sorted(sizes)})"))
            break
    if len({(s.tp, s.dp) for s in layout.stages}) > 1:
        found.append(Reason(code="pipeline.unlike_stages", message="virtual stages need the same tp and dp in every stage",
                            fix="virtual_stages 1, or alike stages"))
    return found


def _round_fix(problem: Problem, layout: Layout) -> str:
    """The nearest number of stages that divides the micro-batches, cuts the layers into equal virtual stages and has GPUs enough; or 1F1B."""
    m, v = layout.micro_batches, layout.virtual_stages
    gpus = layout.replicas * max(s.tp * s.cp * s.dp for s in layout.stages)
    legal = [p for p in divisors(m) if p >= 2 and problem.model.num_layers % (p * v) == 0 and p * gpus <= problem.cluster.gpus]
    plain = "schedule 1f1b with virtual_stages 1"
    return f"pp {min(legal, key=lambda p: (abs(p - layout.pp), p))}, or {plain}" if legal else plain
