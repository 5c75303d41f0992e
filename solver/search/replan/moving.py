"""What moving from one plan to another carries over which links, and how long that takes."""
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from solver.cost.fabric import between
from solver.cost.setting import Setting
from solver.domain.cluster import Cluster
from solver.domain.packing import Gpu
from solver.domain.plan import Plan
from solver.search.replan.answer import Move, Traffic
from solver.search.replan.holdings import Held, held, parts, runs
from solver.units import bytes_per_s_from_gb_s

SLIVER = 1e-12                                             # shares below this are rounding


class Roads:
    """The links of a cluster: seconds per byte between two GPUs, and who is still there."""

    def __init__(self, shared: Setting, checkpoint_gb_s: float | None) -> None:
        self.constants, self.cluster, self.checkpoint_gb_s = shared.constants, shared.problem.cluster, checkpoint_gb_s
        self._known: dict[tuple[str, str, int], tuple[float, str]] = {}
        self._there = {g.name: g for g in self.cluster.node_groups}
        self._gone = {(g.name, u.node, u.gpu) for g in self.cluster.node_groups for u in g.unavailable_gpus}

    def is_there(self, gpu: Gpu) -> bool:
        group = self._there.get(gpu[0])
        return group is not None and gpu[1] < group.nodes and gpu[2] < group.gpus_per_node and gpu not in self._gone

    def between(self, one: Gpu, other: Gpu) -> tuple[float, str]:
        """(seconds per byte, link): the innermost tier that joins both, or the link between their groups."""
        level = -1 if one[0] != other[0] else self._tier(one, other)
        key = one[0], other[0], level
        if key not in self._known:
            self._known[key] = self._link(*key)
        return self._known[key]

    def from_checkpoint(self, gpu: Gpu) -> float:
        """Seconds per byte read back from storage: at the speed stated, else at that of the GPU's own network."""
        gb_s = self.checkpoint_gb_s or self._there[gpu[0]].tiers[-1].bandwidth_gb_s
        return 1.0 / bytes_per_s_from_gb_s(gb_s)

    def _tier(self, one: Gpu, other: Gpu) -> int:
        group = self._there[one[0]]
        a, b = (node * group.gpus_per_node + gpu for _, node, gpu in (one, other))
        return next((i for i, tier in enumerate(group.tiers) if a // tier.size == b // tier.size), len(group.tiers) - 1)

    def _link(self, one: str, other: str, level: int) -> tuple[float, str]:
        if level < 0:
            return 1.0 / between(self.constants, self.cluster, one, other, crossing=1).bandwidth_bytes_s, "network"
        tier = self._there[one].tiers[level]
        used = self.constants.communication.network_share if tier.name == "network" else 1.0
        return 1.0 / (bytes_per_s_from_gb_s(tier.bandwidth_gb_s) * used), tier.name


def move(shared: Setting, old: Plan, new: Plan, checkpoint_gb_s: float | None = None) -> Move:
    """The transfers that turn the states of `old` into those of `new`: each GPU keeps what it has and fetches the rest from the nearest copy.

    Among copies equally near, the one whose GPU has sent least so far. Every GPU sends and receives through one port per direction, and links stated
    by their total bandwidth carry one transfer after another. The time is that of the busiest port or link. Of ports alone an order of transfers that
    may be interrupted attains it (Gonzalez and Sahni 1976, open shop with preemption), whatever their speeds; where shared links bind as well
    it is a lower bound. Latencies, and setting up and connecting processes anew, are not counted: see `restart_s` of the request.
    """
    roads, tied = Roads(shared, checkpoint_gb_s), shared.model.tied_embeddings
    sent: dict[Gpu, float] = defaultdict(float)
    received: dict[Gpu, float] = defaultdict(float)
    traffic: dict[tuple[str, str, str], float] = defaultdict(float)
    for part in parts(shared, new, runs(shared, (old, new))):
        sources = _Sources(h for h in held(old, part, tied) if roads.is_there(h.gpu))
        for need in held(new, part, tied):
            for low, high in sources.lacking(need):
                size = (high - low) * part.size_bytes
                _fetch(roads, sources, need.gpu, (low, high), size, sent, received, traffic)
    across = _shared_links(shared.problem.cluster, traffic)
    total = sum(traffic.values())
    lost = sum(size for (one, _, _), size in traffic.items() if one == "checkpoint")
    return Move(seconds=max([0.0, *sent.values(), *received.values(), *across]), moved_bytes=total, checkpoint_bytes=lost,
                traffic=tuple(Traffic(between=(a, b), link=link, moved_bytes=size) for (a, b, link), size in sorted(traffic.items())))


def _fetch(roads: Roads, sources: "_Sources", gpu: Gpu, share: tuple[float, float], size: float, sent: dict[Gpu, float], received: dict[Gpu, float],
           traffic: dict[tuple[str, str, str], float]) -> None:
    copies = sources.of(*share)
    if not copies:
        received[gpu] += size * roads.from_checkpoint(gpu)
        traffic["checkpoint", gpu[0], "storage"] += size
        return
    nearest, _, source = min((roads.between(copy, gpu)[0], sent[copy], copy) for copy in copies)
    link = roads.between(source, gpu)[1]
    sent[source] += size * nearest
    received[gpu] += size * nearest
    traffic[source[0], gpu[0], link] += size


def _shared_links(cluster: Cluster, traffic: dict[tuple[str, str, str], float]) -> Iterator[float]:
    """Seconds that each link stated by its total bandwidth is busy, per direction."""
    loads: dict[tuple[int, tuple[str | None, str | None]], float] = defaultdict(float)
    for (one, other, _), size in traffic.items():
        link = None if one in ("checkpoint", other) else cluster.link_between(one, other)
        if link is not None and link.total_bandwidth_gb_s is not None:
            ends = (one, other) if one in link.between else (cluster.group(one).region, cluster.group(other).region)
            loads[cluster.links.index(link), ends] += size / bytes_per_s_from_gb_s(link.total_bandwidth_gb_s)
    yield from loads.values()


class _Sources:
    """Copies of one part that are still there, found by share."""

    def __init__(self, copies: Iterable[Held]) -> None:
        by_share: dict[tuple[float, float], list[Gpu]] = defaultdict(list)
        self._own: dict[Gpu, list[tuple[float, float]]] = defaultdict(list)
        for copy in copies:
            by_share[copy.low, copy.high].append(copy.gpu)
            self._own[copy.gpu].append((copy.low, copy.high))
        self._shares = sorted(by_share.items())
        self._lows = [low for (low, _), _ in self._shares]
        self._widest = max((high - low for (low, high), _ in self._shares), default=0.0)

    def lacking(self, need: Held) -> Iterator[tuple[float, float]]:
        """Shares that a GPU needs and does not have, cut where copies elsewhere begin or end."""
        own = self._own.get(need.gpu, [])
        edges = {need.low, need.high}
        for (low, high), _ in self._near(need.low, need.high):
            edges |= {edge for edge in (low, high) if need.low + SLIVER < edge < need.high - SLIVER}
        ordered = sorted(edges)
        for low, high in zip(ordered, ordered[1:], strict=False):
            if high - low > SLIVER and not _covered(own, low, high):
                yield low, high

    def of(self, low: float, high: float) -> Sequence[Gpu]:
        """GPUs that hold all of a share that no copy's edge cuts."""
        return [gpu for share, gpus in self._near(low, high) if _covered([share], low, high) for gpu in gpus]

    def _near(self, low: float, high: float) -> Iterator[tuple[tuple[float, float], list[Gpu]]]:
        for i in range(bisect_left(self._lows, low - self._widest - SLIVER), len(self._shares)):
            if self._lows[i] >= high:
                return
            yield self._shares[i]


def _covered(shares: Iterable[tuple[float, float]], low: float, high: float) -> bool:
    return any(a <= low + SLIVER and high - SLIVER <= b for a, b in shares)
