"""Which host runs which ranks. torchrun gives every host consecutive ranks, so the plan's rank order must keep each host's ranks together."""
from dataclasses import dataclass, replace

from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.exporters.ranks import RankPlace, rank_places


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host in node rank order. `gpus` are its GPU indices in the order of its local ranks."""

    name: str
    gpus: tuple[int, ...]
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Ranks and hosts, and the order that was used: tp-cp-ep-dp-pp, or tp-cp-ep-pp-dp where `pipelines_first`."""

    places: tuple[RankPlace, ...]
    hosts: tuple[Host, ...]
    pipelines_first: bool


def arrangement(problem: Problem, plan: Plan) -> Arrangement | None:
    """The default rank order where it keeps hosts together, else the other one (which excludes cp and ep); None where neither does."""
    places = rank_places(problem, plan)
    hosts = _hosts(places)
    if hosts is not None:
        return Arrangement(places=places, hosts=hosts, pipelines_first=False)
    stage = plan.pipelines[0].stages[0]
    if stage.cp > 1 or stage.ep > 1:
        return None
    ordered = sorted(places, key=lambda p: (p.dp, p.stage, p.tp))
    places = tuple(replace(p, rank=rank) for rank, p in enumerate(ordered))
    hosts = _hosts(places)
    return None if hosts is None else Arrangement(places=places, hosts=hosts, pipelines_first=True)


def _hosts(places: tuple[RankPlace, ...]) -> tuple[Host, ...] | None:
    gpus: dict[str, list[int]] = {}
    stages: dict[str, set[int]] = {}
    before = None
    for place in places:
        if place.host != before and place.host in gpus:
            return None
        gpus.setdefault(place.host, []).append(place.gpu)
        stages.setdefault(place.host, set()).add(place.stage)
        before = place.host
    return tuple(Host(name=name, gpus=tuple(gpus[name]), stages=tuple(sorted(stages[name]))) for name in gpus)
