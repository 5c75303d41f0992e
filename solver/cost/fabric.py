"""Which links a communicator runs over: ranks of a stage, laid out with a stride, on the tiers of their node groups."""
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

    Across groups, the ranks split evenly and the outermost level is the slowest link between any two of the groups.
    """
    if len(groups) == 1 or size == 1:
        return tuple(path_in_group(constants, cluster.group(name), size, stride) for name in groups)
    across = min(len(groups), size)
    share = max(1, -(-size // across))
    found = []
    for name in groups:
        others = [between(constants, cluster, name, other, crossing=share * stride) for other in groups if other != name]
        slowest = min(others, key=lambda pair: pair[0])
        latency = max(pair[1] for pair in others)
        outer = Level(ranks=across, latency_s=latency, bandwidth_bytes_s=slowest[0], network=True)
        found.append((*path_in_group(constants, cluster.group(name), share, stride), outer))
    return tuple(found)


def between(constants: Efficiency, cluster: Cluster, one: str, other: str, crossing: int) -> tuple[float, float]:
    """(bytes per second per GPU, seconds per hop) from a GPU of one group to a GPU of another.

    A GPU reaches no other group faster than its own network carries: the slower of the two groups' networks, or a stated link where that is slower
    still. A total bandwidth is shared by the `crossing` GPUs that send at once.
    """
    a, b = cluster.group(one).tiers[-1], cluster.group(other).tiers[-1]
    if one == other:
        return _speed(constants, a)
    network = min(a.bandwidth_gb_s, b.bandwidth_gb_s)
    latency_us = max(a.latency_us, b.latency_us)
    share = constants.link_share("group_link")
    link = cluster.link_between(one, other)
    if link is None:
        return bytes_per_s_from_gb_s(network) * share, seconds_from_us(latency_us)
    if link.latency_us is not None:
        latency_us = link.latency_us
    stated = link.bandwidth_gb_s if link.bandwidth_gb_s is not None else (link.total_bandwidth_gb_s or 0.0) / max(1, crossing)
    return bytes_per_s_from_gb_s(min(stated, network)) * share, seconds_from_us(latency_us)


def nearest(constants: Efficiency, group: NodeGroup, near: bool) -> tuple[float, float]:
    """(bytes per second, seconds per hop) between neighbouring stages of one group: the widest fabric short of the network where they share it, else
    the network."""
    inner = [tier for tier in group.tiers if tier.name != "network"]
    return _speed(constants, inner[-1] if near and inner else group.tiers[-1])


def _level(constants: Efficiency, tier: FabricTier, ranks: float) -> Level:
    bandwidth, latency = _speed(constants, tier)
    return Level(ranks=ranks, latency_s=latency, bandwidth_bytes_s=bandwidth, network=tier.name == "network")


def _speed(constants: Efficiency, tier: FabricTier) -> tuple[float, float]:
    return bytes_per_s_from_gb_s(tier.bandwidth_gb_s) * constants.link_share(tier.name), seconds_from_us(tier.latency_us)
