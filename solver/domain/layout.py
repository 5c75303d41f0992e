"""A plan in counts: what pricing needs of it, without naming GPUs. Identical replicas are one number here."""
from dataclasses import dataclass, replace
from functools import lru_cache

from solver.domain.degrees import Framework, Recompute, ScheduleName
from solver.domain.identity import Same

LAYOUTS_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """Who holds the layers of a stage where pipelines are unlike: one stage of each of `pipelines` pipelines, which lie apart, anywhere in `groups`.

    `same_node`: all of them lie in one node (or NVLink domain).
    """

    pipelines: int
    groups: tuple[str, ...]
    same_node: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayout:
    """One stage of every replica at once.

    `groups` are the node groups that its GPUs lie in over all replicas (sorted): more than one means that it runs at the slowest member's speed.
    `layers` are inclusive ranges, one per virtual stage.
    """

    layers: tuple[tuple[int, int], ...]
    tp: int
    cp: int
    dp: int                                                # groups that split a micro-batch inside a replica
    ep: int
    etp: int
    recompute: Recompute
    zero_stage: int
    groups: tuple[str, ...]
    holders: Holders | None = None                         # None: the replicas of the stage are alike and lie side by side

    @property
    def num_layers(self) -> int:
        return sum(last - first + 1 for first, last in self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The boundary behind stage i: towards stage i + 1 (for the last stage: back to the first, used by virtual stages only)."""

    same_node: bool                                        # both stages, all replicas together, lie in one node (or NVLink domain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`replicas` equal pipelines of `stages`, each running `micro_batches` micro-batches of `micro_batch_size` sequences."""

    stages: tuple[StageLayout, ...]
    edges: tuple[Edge, ...]                                # one per stage, see Edge
    replicas: int
    micro_batches: int
    micro_batch_size: int
    schedule: ScheduleName
    virtual_stages: int
    sequence_parallel: bool
    ulysses: int                                           # Ulysses degree inside cp, 1: ring alone
    vocabulary_parallel_loss: bool
    pipeline_vocabulary: bool = False
    framework: Framework | None = None
    slices: int | None = None
    offload: float | None = None
    shard_group: int | None = None

    @property
    def pp(self) -> int:
        return len(self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlikeLayout:
    """Pipelines that are not alike, in the order of the plan: each a layout of one replica with its own share of the micro-batches, one object where
    they are equal. Every stage says who else holds its layers."""

    pipelines: tuple[Layout, ...]

    @property
    def joined(self) -> Layout:
        """All stages of all pipelines as if they were one pipeline: for what is counted stage by stage, not for times."""
        stages = tuple(s for p in self.pipelines for s in p.stages)
        return replace(self.pipelines[0], stages=stages, edges=tuple(e for p in self.pipelines for e in p.edges))

    @property
    def distinct(self) -> tuple[Layout, ...]:
        """Each different pipeline once, in order of first appearance."""
        return tuple({id(p): p for p in self.pipelines}.values())


def unlike_stages(layout: Layout) -> tuple[tuple[int, StageLayout], ...]:
    """(index, stage) of the first of all stages that are alike but for their layers."""
    return _unlike(Same(layout))


@lru_cache(maxsize=LAYOUTS_KEPT)
def _unlike(key: Same[Layout]) -> tuple[tuple[int, StageLayout], ...]:
    found: dict[tuple[object, ...], tuple[int, StageLayout]] = {}
    for i, s in enumerate(key.value.stages):
        found.setdefault((s.groups, s.tp, s.cp, s.dp, s.ep, s.etp, s.recompute, s.zero_stage), (i, s))
    return tuple(found.values())
