"""What would bring a stage that is over its memory below it: changes that touch the term that binds, and that the layout still leaves room for."""
from solver.axes import context, tensor
from solver.domain.estimate import Memory, StageMemory
from solver.domain.layout import Layout
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload

STATES = ("weights", "gradients", "optimizer")


def states_gib(stage: StageMemory) -> float:
    """Weights, gradients and optimizer state of one GPU: what no change of micro-batch or recompute makes smaller."""
    return stage.weights_gib + stage.gradients_gib + stage.optimizer_gib


def fix_for(problem: Problem, layout: Layout, memory: Memory, index: int) -> str:
    """The changes for stage `index`, most fitting first, as one phrase; more GPUs where nothing else is left.

    Which term binds: the states where they alone are over the capacity, else the largest of states, activations with buffers, and logits.
    Each change makes that term smaller; whether one alone is enough is for an estimate to say.
    """
    stage = memory.stages[index]
    states = states_gib(stage)
    if states > stage.capacity_gib:
        found = _states(problem, layout, memory, index) + ["more GPUs, or GPUs with more memory"]
    else:
        terms = {"states": states, "activations": stage.activations_gib + stage.buffers_gib, "logits": stage.logits_gib}
        by = {"states": _states(problem, layout, memory, index), "activations": _activations(problem, layout, memory, index),
              "logits": _logits(problem, layout, index)}
        found = [change for term in sorted(terms, key=lambda t: -terms[t]) if terms[term] > 0.0 for change in by[term]]
        found = list(dict.fromkeys(found))[:4] or ["more GPUs, or GPUs with more memory"]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])}, or {found[-1]}"


def _states(problem: Problem, layout: Layout, memory: Memory, index: int) -> list[str]:
    stage, found = layout.stages[index], []
    ranks = layout.replicas * stage.dp * stage.cp
    highest = 1 if layout.framework == "megatron" or len({(s.tp, s.dp) for s in layout.stages}) > 1 else 3
    if stage.zero_stage < highest and ranks > 1:
        shards = {1: "the optimizer state", 2: "gradients too", 3: "weights too"}[stage.zero_stage + 1]
        found.append(f"ZeRO stage {stage.zero_stage + 1} (over {ranks} ranks: {shards})")
    found += _more_tensor(problem, layout, index, "")
    found += _more_stages(problem, layout) + _fewer_layers(layout, memory, index)
    if isinstance(problem.workload, TrainingWorkload) and problem.workload.gradient_precision != "bf16":
        found.append("bf16 gradients")
    return found


def _activations(problem: Problem, layout: Layout, memory: Memory, index: int) -> list[str]:
    stage, found = layout.stages[index], []
    if stage.recompute != "full":
        found.append("recompute full" if stage.recompute == "partial" else "recompute partial or full")
    found += _smaller_micro_batch(layout)
    if stage.tp > 1 and not layout.sequence_parallel:
        found.append("sequence parallelism")
    found += _more_tensor(problem, layout, index, " with sequence parallelism")
    found += _more_context(problem, layout, index)
    if layout.schedule == "gpipe" and layout.pp > 1:
        found.append("schedule 1f1b, which keeps fewer micro-batches in flight")
    elif layout.schedule == "interleaved":
        found.append("fewer virtual stages or schedule 1f1b, which keep fewer micro-batches in flight")
    return found + _fewer_layers(layout, memory, index)


def _logits(problem: Problem, layout: Layout, index: int) -> list[str]:
    stage, found = layout.stages[index], []
    if stage.tp > 1 and not layout.vocabulary_parallel_loss:
        found.append("vocabulary_parallel_loss")
    return found + _more_tensor(problem, layout, index, " with vocabulary_parallel_loss") + _smaller_micro_batch(layout) \
        + _more_context(problem, layout, index)


def _smaller_micro_batch(layout: Layout) -> list[str]:
    return [f"a micro-batch smaller than {layout.micro_batch_size}"] if layout.micro_batch_size > 1 else []


def _more_tensor(problem: Problem, layout: Layout, index: int, how: str) -> list[str]:
    stage = layout.stages[index]
    left = problem.cluster.gpus - sum(s.tp * s.cp for i, s in enumerate(layout.stages) if i != index)
    larger = [t for t in tensor.degrees_on(problem, stage.groups) if t > stage.tp and t * stage.cp <= left]
    return [f"tp {larger[0]}{how}"] if larger else []


def _more_context(problem: Problem, layout: Layout, index: int) -> list[str]:
    cp, gpus, ranks = layout.stages[index].cp, problem.cluster.gpus, sum(s.tp for s in layout.stages)
    larger = [c for c in context.legal_degrees(problem) if c > cp and c % layout.ulysses == 0 and c * ranks <= gpus]
    return [f"cp {larger[0]}"] if larger else []


def _more_stages(problem: Problem, layout: Layout) -> list[str]:
    least = min(s.tp * s.cp for s in layout.stages)
    held = sum(s.tp * s.cp for s in layout.stages)
    return [f"more than {layout.pp} pipeline stages"] if layout.pp < problem.model.num_layers and held + least <= problem.cluster.gpus else []


def _fewer_layers(layout: Layout, memory: Memory, index: int) -> list[str]:
    """Layers may move where another stage has room for one of them."""
    stage = memory.stages[index]
    layers = layout.stages[index].num_layers
    one = (states_gib(stage) + stage.activations_gib) / layers
    room = any(other.total_gib + one <= other.capacity_gib for i, other in enumerate(memory.stages) if i != index)
    return [f"fewer than {layers} layers in this stage"] if room and layers > 1 else []
