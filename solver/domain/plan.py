"""A plan: every layer, every degree and every GPU named. What the search returns, what an estimate can price, what an exporter writes."""
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le, Len

from solver.domain.bounds import MAX_DEGREE, MAX_GPUS_PER_NODE, MAX_LAYERS, PYDANTIC, Count, FailFast, Index, Name, Pattern, Share, refuse_bad_values
from solver.domain.degrees import Framework, Recompute, ScheduleName, ZeroStage
from solver.errors import Fault, InputError

LayerRange = tuple[Annotated[int, Ge(0), Le(MAX_LAYERS)], Annotated[int, Ge(0), Le(MAX_LAYERS)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSlice:
    """Some GPUs of one node. Ranks of a stage follow the order in which its slices and their GPUs are listed: tp fastest, then cp, then dp."""

    __pydantic_config__ = PYDANTIC
    node_group: Name
    node: Index
    gpus: Annotated[tuple[Annotated[int, Ge(0), Le(MAX_GPUS_PER_NODE)], ...], Len(1, MAX_GPUS_PER_NODE)]

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline slice of one replica: its layers (one inclusive range per virtual stage), degrees and GPUs (tp * cp * dp of them)."""

    __pydantic_config__ = PYDANTIC
    layers: Annotated[tuple[LayerRange, ...], Len(1, MAX_LAYERS)]
    tp: Count = 1
    dp: Count = 1                                          # groups that split each micro-batch of this pipeline
    cp: Count = 1
    ep: Count = 1
    etp: Count = 1
    recompute: Recompute = "none"
    zero_stage: ZeroStage = 1
    devices: Annotated[tuple[DeviceSlice, ...], Len(1, MAX_DEGREE), FailFast()]

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        for i, (first, last) in enumerate(self.layers):
            if first > last:
                raise InputError(Fault(pointer=f"/layers/{i}", message=f"[{first}, {last}] runs backwards", legal="[first, last] with first <= last"))

    @property
    def num_layers(self) -> int:
        return sum(last - first + 1 for first, last in self.layers)

    @property
    def gpus(self) -> int:
        return sum(len(d.gpus) for d in self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One replica of the model, and how many micro-batches of each step it takes."""

    __pydantic_config__ = PYDANTIC
    micro_batches: Count
    stages: Annotated[tuple[Stage, ...], Len(1, MAX_LAYERS), FailFast()]

    def __post_init__(self) -> None:
        refuse_bad_values(self)


VersionName = Annotated[str, Pattern(r"[A-Za-z0-9._:+-]{0,253}")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What a plan was made with, so that it can be priced again."""

    __pydantic_config__ = PYDANTIC
    cost_model: VersionName = ""
    catalogue: VersionName = ""
    profiles: VersionName = ""
    calibration: VersionName = ""

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A complete layout. Pipelines that are alike are listed one by one: a plan names every GPU."""

    __pydantic_config__ = PYDANTIC
    pipelines: Annotated[tuple[Pipeline, ...], Len(1, MAX_DEGREE), FailFast()]
    schedule: ScheduleName = "1f1b"
    micro_batch_size: Count = 1
    virtual_stages: Annotated[int, Ge(1), Le(MAX_LAYERS)] = 1
    sequence_parallel: bool = False
    ulysses: Count | None = None
    slices: Count | None = None
    offload: Share | None = None
    shard_group: Count | None = None
    vocabulary_parallel_loss: bool = True
    pipeline_vocabulary: bool = False
    framework: Framework | None = None
    versions: Versions | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)

    @property
    def gpus(self) -> int:
        return sum(s.gpus for p in self.pipelines for s in p.stages)
