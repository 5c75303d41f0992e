"""Which host runs which ranks, in which order.

torchrun gives every host consecutive ranks. Where the plan's rank order keeps each host's ranks together it is used; where it does not, the processes
have to be started one by one with the rank of each.
"""
from dataclasses import dataclass, replace

from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.exporters.ranks import RankPlace, rank_places


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host. `gpus` are its GPU indices and `ranks` the global ranks, both in the order of local ranks."""

    name: str
    gpus: tuple[int, ...]
    ranks: tuple[int, ...]
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Ranks and hosts, sorted by first rank. The rank order is tp-cp-ep-dp-pp, or tp-cp-ep-pp-dp where `pipelines_first`."""

    places: tuple[RankPlace, ...]
    hosts: tuple[Host, ...]
    pipelines_first: bool

    @property
    def consecutive(self) -> bool:
        """Whether every host has consecutive ranks, host after host: what torchrun needs."""
        return [r for h in self.hosts for r in h.ranks] == list(range(len(self.places)))


def arrangement(problem: Problem, plan: Plan) -> Arrangement:
    """The default rank order where it keeps hosts together, else the other one (which excludes cp and ep) where that does, else the default."""
    places = rank_places(problem, plan)
    usual = Arrangement(places=places, hosts=_hosts(places), pipelines_first=False)
    stage = plan.pipelines[0].stages[0]
    if usual.consecutive or stage.cp > 1 or stage.ep > 1:
        return usual
    ordered = sorted(places, key=lambda p: (p.dp, p.stage, p.tp))
    places = tuple(replace(p, rank=rank) for rank, p in enumerate(ordered))
    other = Arrangement(places=places, hosts=_hosts(places), pipelines_first=True)
    return other if other.consecutive else usual


def _hosts(places: tuple[RankPlace, ...]) -> tuple[Host, ...]:
    held: dict[str, list[RankPlace]] = {}
    for place in places:
        held.setdefault(place.host, []).append(place)
    return tuple(Host(name=name, gpus=tuple(p.gpu for p in its), ranks=tuple(p.rank for p in its), stages=tuple(sorted({p.stage for p in its})))
                 for name, its in held.items())
