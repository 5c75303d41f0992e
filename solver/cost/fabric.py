"""Which links a communicator runs over: ranks of a stage, laid out with a stride, on the tiers of their node groups."""
from dataclasses import replace

from solver.catalog.efficiency import Efficiency
from solver.cost.collectives import Level, Path
from solver.domain.cluster import Cluster, FabricTier, NodeGroup
from solver.units import bytes_per_s_from_gb_s, seconds_from_us


def path_in_group(constants: Efficiency, group: NodeGroup, size: int, stride: int) -> Path:
    """Levels of `size` ranks that lie `stride` GPUs apart in one node group.

    A tier's blocks hold max(1, min(size, tier size // stride)) of them. Ranks beyond the last tier count on it: the caller refuses such layouts.
    """
    levels: list[Level] = []
    inside = 1
    for tier in group.tiers:
        here = max(inside, min(size, tier.size // stride))
        if here > inside:
            levels.append(_level(constants, tier, here / inside))
            inside = here
    if inside < size:
        levels.append(_level(constants, group.tiers[-1], size / inside))
    return tuple(levels)


def paths(constants: Efficiency, cluster: Cluster, groups: tuple[str, ...], size: int, stride: int) -> tuple[Path, ...]:
    """One path per node group of a communicator that may span several; a collective takes as long as on the slowest of them.

    Across groups, the ranks split evenly and the outermost level is the slowest link between any two of the groups. Where a group's own part spans
    nodes, both run over the same ports: they are one network, at the slower of the two.
    """
    if len(groups) == 1 or size == 1:
        return tuple(path_in_group(constants, cluster.group(name), size, stride) for name in groups)
    across = min(len(groups), size)
    share = max(1, -(-size // across))
    found = []
    for name in groups:
        others = [between(constants, cluster, name, other, crossing=share * stride) for other in groups if other != name]
        outer = replace(min(others, key=lambda level: level.bandwidth_bytes_s), ranks=across, latency_s=max(level.latency_s for level in others))
        inside = path_in_group(constants, cluster.group(name), share, stride)
        found.append(joined(inside, outer))
    return tuple(found)


def joined(inside: Path, outer: Level) -> Path:
    """A path with one more level around it; two levels over the same network are one."""
    return (*inside[:-1], _merged(inside[-1], outer)) if inside and inside[-1].network == outer.network else (*inside, outer)


def _merged(one: Level, other: Level) -> Level:
    slower = min(one, other, key=lambda level: level.bandwidth_bytes_s)
    return replace(slower, ranks=one.ranks * other.ranks, latency_s=max(one.latency_s, other.latency_s))


def between(constants: Efficiency, cluster: Cluster, one: str, other: str, crossing: int) -> Level:
    """The link from a GPU of one group to a GPU of another, per GPU.

    A GPU reaches no other group faster than its own network carries: the slower of the two groups' networks, or a stated link where that is slower
    still. A total bandwidth is shared by the `crossing` GPUs that send at once.
    """
    a, b = cluster.group(one).tiers[-1], cluster.group(other).tiers[-1]
    tier = min(a, b, key=lambda t: t.bandwidth_gb_s)
    if one == other:
        return _level(constants, tier, 2)
    latency_us = max(a.latency_us, b.latency_us)
    link = cluster.link_between(one, other)
    if link is None:
        return _level(constants, replace(tier, name="network", latency_us=latency_us), 2)
    stated = link.bandwidth_gb_s if link.bandwidth_gb_s is not None else (link.total_bandwidth_gb_s or 0.0) / max(1, crossing)
    return _level(constants, replace(tier, name="network", bandwidth_gb_s=min(stated, tier.bandwidth_gb_s),
                                     latency_us=latency_us if link.latency_us is None else link.latency_us), 2)


def nearest(constants: Efficiency, group: NodeGroup, near: bool) -> Level:
    """The link between neighbouring stages of one group: the widest fabric short of the network where they share it, else the network."""
    inner = [tier for tier in group.tiers if tier.name != "network"]
    return _level(constants, inner[-1] if near and inner else group.tiers[-1], 2)


def outermost(constants: Efficiency, group: NodeGroup) -> Level:
    """The link between any two GPUs of a group, wherever they are."""
    return _level(constants, group.tiers[-1], 2)


def _level(constants: Efficiency, tier: FabricTier, ranks: float) -> Level:
    link, network = constants.collectives.link_class(tier.link, tier.name), tier.name == "network"
    communication = constants.communication
    used = communication.network_share if network else communication.bus_share if link.bus else 1.0
    if link.mesh and tier.size > 1:
        used *= min(1.0, (ranks - 1.0) / (tier.size - 1.0))
    return Level(ranks=ranks, latency_s=seconds_from_us(tier.latency_us), bandwidth_bytes_s=bytes_per_s_from_gb_s(tier.bandwidth_gb_s) * used,
                 network=network, link=link)
