"""The paths of a problem's communicators, with the user's measurements of them attached where there are any.

A measurement is of so many ranks packed as densely as they lie in their node groups. It stands for every communicator of as many ranks over the same
levels of the fabric: ranks further apart that cross more of the network keep the formulas.
"""
from dataclasses import replace
from typing import cast

from solver.cost.alike import distinct_pairs, many
from solver.cost.collectives import Level, Path, Paths
from solver.cost.fabric import between, joined, nearest, path_in_group, paths
from solver.cost.setting import Setting, remembered
from solver.domain.layout import Holders


@remembered
def group_path(shared: Setting, group: str, ranks: int, stride: int, floor: bool = False) -> Path:
    """Levels of `ranks` ranks `stride` GPUs apart in one node group. `floor`: measurements as lower bounds that fall per byte."""
    if many(ranks, stride):
        pairs, index = distinct_pairs(ranks, stride)
        found = tuple(group_path(shared, group, r, s, floor) for r, s in pairs)
        return cast(Path, Paths.of(found, index))
    path = path_in_group(shared.constants, shared.machines[group].group, ranks, stride)
    return _attached(shared, (group,), ranks, stride, (path,), floor)[0]


def data_paths(shared: Setting, groups: tuple[str, ...], ranks: int, stride: int) -> tuple[Path, ...]:
    """One path per node group of a communicator that may span several."""
    return _attached(shared, groups, ranks, stride, paths(shared.constants, shared.problem.cluster, groups, ranks, stride))


@remembered
def apart_path(shared: Setting, group: str, holders: Holders, inside: int, stride: int) -> Path:
    """Levels of a communicator over unlike pipelines: `inside` ranks `stride` GPUs apart in this one, and one such block in every pipeline.

    These are joined by the slowest link between this node group and any other that a pipeline lies in.
    """
    constants, cluster = shared.constants, shared.problem.cluster
    path = path_in_group(constants, cluster.group(group), inside, stride)
    if holders.same_node:
        outer = nearest(constants, cluster.group(group), True)
    else:
        crossing = -(-holders.pipelines // len(holders.groups)) * inside * stride
        links = [between(constants, cluster, group, other, crossing) for other in holders.groups]
        outer = replace(min(links, key=lambda level: level.bandwidth_bytes_s), latency_s=max(level.latency_s for level in links))
    return joined(path, replace(outer, ranks=holders.pipelines))


@remembered
def boundary_link(shared: Setting, one: str, other: str, same_node: bool, crossing: int) -> Level:
    """The link between neighbouring stages on two node groups, or on one: inside a block of its fabric, or over its network."""
    constants, cluster = shared.constants, shared.problem.cluster
    if one != other:
        return _attached(shared, tuple(sorted((one, other))), 2, 1, ((between(constants, cluster, one, other, crossing),),))[0][0]
    link = nearest(constants, cluster.group(one), same_node)
    densest = path_in_group(constants, cluster.group(one), 2, 1)
    return _attached(shared, (one,), 2, 1, ((link,),))[0][0] if densest == (link,) else link


def _attached(shared: Setting, groups: tuple[str, ...], ranks: int, stride: int, found: tuple[Path, ...], floor: bool = False) -> tuple[Path, ...]:
    curves = shared.collectives.get((groups, ranks)) if shared.collectives is not None else None
    if curves is None:
        return found
    if stride > 1 and found != paths(shared.constants, shared.problem.cluster, groups, ranks, 1):
        return found
    if floor:
        curves = {op: sizes.as_floor() for op, sizes in curves.items()}
    return tuple((*path[:-1], replace(path[-1], measured=curves)) if path else path for path in found)
