"""The user's own measurements of layers and collectives, used before any formula."""
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le, Len

from solver.domain.bounds import PYDANTIC, Count, FailFast, Label, Name, Positive, refuse_bad_values


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProfile:
    """The user's own measurement of one layer on one GPU type at one TP degree and micro-batch size."""

    __pydantic_config__ = PYDANTIC
    gpu: Label
    tp: Count
    micro_batch_size: Count
    layer: Label | Annotated[int, Ge(0), Le(1_000_000)]
    forward_s: Positive
    backward_s: Positive
    weight_grad_s: Positive | None = None
    update_s: Positive | None = None
    parameter_bytes: Positive | None = None
    activation_bytes: Positive | None = None
    output_bytes: Positive | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveProfile:
    """The user's own measurement of one collective."""

    __pydantic_config__ = PYDANTIC
    op: Label
    groups: Annotated[tuple[Name, ...], Len(1, 64)]
    ranks: Count
    bytes: Positive
    seconds: Positive

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Measurements for this problem, used before any formula."""

    __pydantic_config__ = PYDANTIC
    layers: Annotated[tuple[LayerProfile, ...], Len(0, 100_000), FailFast()] = ()
    collectives: Annotated[tuple[CollectiveProfile, ...], Len(0, 100_000), FailFast()] = ()
    extrapolate: bool = False
