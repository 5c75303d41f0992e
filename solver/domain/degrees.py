"""The single owner of every parallel degree and of rank order.

World size = tp * cp * dp * pp; `dp` excludes `cp`; experts shard over tp * cp * dp. Ranks run tp, cp, ep, dp, pp from the fastest.
"""
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le, Len

from solver.domain.bounds import MAX_LAYERS, PYDANTIC, Count, Share, refuse_bad_values

Recompute = Literal["none", "selective", "partial", "full"]
ScheduleName = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "stp", "slimpipe", "solver"]
Framework = Literal["megatron", "megatron_deepspeed", "deepspeed", "fsdp", "torchtitan"]
ZeroStage = Annotated[int, Ge(0), Le(3)]

RANK_ORDER = ("tp", "cp", "ep", "dp", "pp")               # fastest first
SCHEDULES: tuple[ScheduleName, ...] = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "stp", "slimpipe", "solver")
PLANNED_SCHEDULES: tuple[ScheduleName, ...] = ("gpipe", "1f1b", "interleaved")      # those that the search chooses among
RECOMPUTE_MODES: tuple[Recompute, ...] = ("none", "selective", "partial", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A uniform layout in shorthand: the same degrees in every stage, layers spread evenly unless `layers_per_stage` says otherwise."""

    __pydantic_config__ = PYDANTIC
    tp: Count = 1
    pp: Annotated[int, Ge(1), Le(MAX_LAYERS)] = 1
    dp: Count = 1
    cp: Count = 1
    ep: Count = 1
    etp: Count = 1
    virtual_stages: Annotated[int, Ge(1), Le(MAX_LAYERS)] = 1
    micro_batch_size: Count = 1
    zero_stage: ZeroStage = 1
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    schedule: ScheduleName = "1f1b"
    slices: Count | None = None
    offload: Share | None = None
    shard_group: Count | None = None
    ulysses: Count | None = None                           # Ulysses degree inside cp; the rest is ring
    layers_per_stage: Annotated[tuple[Annotated[int, Ge(1), Le(MAX_LAYERS)], ...], Len(1, MAX_LAYERS)] | None = None
    vocabulary_parallel_loss: bool = True
    pipeline_vocabulary: bool = False
    framework: Framework | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)

    @property
    def world_size(self) -> int:
        return self.tp * self.cp * self.dp * self.pp


def even_split(layers: int, stages: int) -> tuple[int, ...]:
    """`layers` over `stages` as evenly as can be, the remainder one each on the middle stages.

    >>> even_split(80, 3), even_split(78, 12)
    ((27, 27, 26), (6, 6, 6, 7, 7, 7, 7, 7, 7, 6, 6, 6))
    """
    base, extra = divmod(layers, stages)
    first = (stages - extra) // 2
    return tuple(base + (first <= i < first + extra) for i in range(stages))
