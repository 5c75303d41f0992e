"""Measured operators of a GPU type, by shape and precision: figures that hold for every model."""
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from solver.domain.bounds import PYDANTIC, Count, Label, Positive, Size, refuse_bad_values
from solver.domain.workload import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmProfile:
    """One matrix product (m x k) by (k x n) on one GPU. precision: that of the two factors."""

    __pydantic_config__ = PYDANTIC
    gpu: Label
    precision: Precision
    m: Size
    n: Size
    k: Size
    seconds: Positive

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionProfile:
    """One causal attention core in 16 bit on one GPU: `heads` query heads on `sequences` sequences, with the fused kernel that training uses."""

    __pydantic_config__ = PYDANTIC
    gpu: Label
    sequences: Count
    seq_len: Size
    heads: Count
    head_dim: Annotated[int, Ge(1), Le(65_536)]            # of queries and keys
    v_head_dim: Annotated[int, Ge(1), Le(65_536)] | None = None      # of values, where that differs
    window: Size | None = None                             # tokens that a query sees, where that is not all before it
    forward_s: Positive
    backward_s: Positive

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfile:
    """One memory-bound kernel on one GPU: bytes read and written in all."""

    __pydantic_config__ = PYDANTIC
    gpu: Label
    bytes: Positive
    seconds: Positive

    def __post_init__(self) -> None:
        refuse_bad_values(self)
