"""Which GPU of a plan holds which part of the training state: weights and optimizer states, by runs of layers that both plans treat alike.

A part is an interval of [0, 1): the share of the tensors of a run of layers. Tensor rank r of t holds [r / t, (r + 1) / t) of the dense weights,
norms and routers counted as if they were cut too; replica j of n holds the j-th n-th of that under ZeRO (optimizer states from stage 1, weights at
stage 3). Routed experts are cut over expert ranks times their tensor ranks, and sharded over the replicas of those. Gradients hold nothing between
steps.
"""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from solver.cost.memory import state_elements
from solver.cost.parameters import embedding_parameters, final_parameters, head_parameters, layer_parameters, mtp_parameters
from solver.cost.setting import Setting
from solver.domain.packing import Gpu
from solver.domain.plan import Plan, Stage

Kind = Literal["weights", "optimizer"]
Tensors = Literal["dense", "experts"]
EMBEDDING, HEAD = -1, -2                                   # in place of a layer's index


@dataclass(frozen=True, slots=True)
class Run:
    """Layers `first` to `last` (or an end of the model) with their parameters: all that is cut as dense weights are, and routed experts."""

    first: int
    last: int
    dense: int
    experts: int


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor kind of one run of layers, `size_bytes` whole."""

    run: Run
    tensors: Tensors
    kind: Kind
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Held:
    """[low, high) of a part on one GPU."""

    low: float
    high: float
    gpu: Gpu


def runs(shared: Setting, plans: Sequence[Plan]) -> tuple[Run, ...]:
    """The model cut wherever any stage of any of the plans begins or ends, or the class of layers changes; then its two ends.

    Tied embeddings are part of the first end alone; the last stage holds them too, see `holders`.
    """
    layers = shared.layers
    cuts = {0, len(layers)} | {i for i in range(1, len(layers)) if layers[i] != layers[i - 1]}
    for plan in plans:
        for pipeline in plan.pipelines:
            cuts |= {edge for stage in pipeline.stages for first, last in stage.layers for edge in (first, last + 1)}
    found = []
    for low, high in pairwise(sorted(c for c in cuts if 0 <= c <= len(layers))):
        counted = layer_parameters(shared.model, layers[low])
        found.append(Run(low, high - 1, (high - low) * (counted.total - counted.experts), (high - low) * counted.experts))
    model = shared.model
    found.append(Run(EMBEDDING, EMBEDDING, embedding_parameters(model), 0))
    found.append(Run(HEAD, HEAD, head_parameters(model) + final_parameters(model) + mtp_parameters(model), 0))
    return tuple(found)


def parts(shared: Setting, plan: Plan, all_runs: Sequence[Run]) -> tuple[Part, ...]:
    """Every part with its size in bytes, in the precision that the plan's stack keeps."""
    _, optimizer, weight = state_elements(shared, max(s.zero_stage for p in plan.pipelines for s in p.stages), plan.framework)
    found = []
    for run in all_runs:
        for tensors, count in (("dense", run.dense), ("experts", run.experts)):
            for kind, element in (("weights", weight), ("optimizer", optimizer)):
                if count and element:
                    found.append(Part(run, tensors, kind, count * element))    # type: ignore[arg-type]
    return tuple(found)


def held(plan: Plan, part: Part, tied: bool) -> list[Held]:
    """Who holds a part, in rank order."""
    stages = list(_holders(plan, part.run, tied))
    return _experts(stages, part.kind) if part.tensors == "experts" else _dense(stages, part.kind)


def _holders(plan: Plan, run: Run, tied: bool) -> Iterator[Stage]:
    for pipeline in plan.pipelines:
        final = len(pipeline.stages) - 1
        for i, stage in enumerate(pipeline.stages):
            if run.first == EMBEDDING:
                found = i == 0 or (tied and i == final)
            elif run.first == HEAD:
                found = i == final
            else:
                found = any(first <= run.first and run.last <= last for first, last in stage.layers)
            if found:
                yield stage


def gpus_of(stage: Stage) -> list[Gpu]:
    """GPUs of a stage in rank order."""
    return [(d.node_group, d.node, g) for d in stage.devices for g in d.gpus]


def _dense(stages: Sequence[Stage], kind: Kind) -> list[Held]:
    """Where tensor degrees differ between replicas, shards are cut replica first, so that together they are whole all the same."""
    replicas = sum(stage.gpus // stage.tp for stage in stages)
    alike = len({stage.tp for stage in stages}) == 1
    found, at = [], 0
    for stage in stages:
        sharded = stage.zero_stage >= (1 if kind == "optimizer" else 3)
        for i, gpu in enumerate(gpus_of(stage)):
            rank, replica = i % stage.tp, at + i // stage.tp
            if not sharded:
                low, width = rank / stage.tp, 1 / stage.tp
            elif alike:
                low, width = (rank + replica / replicas) / stage.tp, 1 / stage.tp / replicas
            else:
                low, width = (replica + rank / stage.tp) / replicas, 1 / stage.tp / replicas
            found.append(Held(low, low + width, gpu))
        at += stage.gpus // stage.tp
    return found


def _experts(stages: Sequence[Stage], kind: Kind) -> list[Held]:
    total = sum(stage.gpus for stage in stages)
    found, at = [], 0
    for stage in stages:
        cut = stage.ep * stage.etp
        copies = max(1, total // cut)
        sharded = stage.zero_stage >= (1 if kind == "optimizer" else 3)
        for i, gpu in enumerate(gpus_of(stage), start=at):
            rank, copy = i % cut, (i // cut) % copies
            low, width = ((rank + copy / copies) / cut, 1 / cut / copies) if sharded else (rank / cut, 1 / cut)
            found.append(Held(low, low + width, gpu))
        at += stage.gpus
    return found
