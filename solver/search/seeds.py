"""A first plan to beat: a few hundred even layouts estimated from probes, the most promising laid out and priced. They prove nothing; they prune."""
from dataclasses import replace

import numpy as np

from solver.domain.degrees import even_split
from solver.search.incumbent import Incumbents, layout_of_picks
from solver.search.labels import StagePick
from solver.search.probes import probe
from solver.search.space import Choice, Space
from solver.search.tables import TableFactory
from solver.simulate.orders import in_flight

TRIED = 24                                                 # layouts priced
SIZES = 3                                                  # smallest micro-batch sizes tried
CONTEXTS = 3                                               # smallest context degrees tried


def sow(space: Space, factory: TableFactory, incumbents: Incumbents) -> None:
    """Offer the best even layouts: equal stages in one node group after another, the same recompute everywhere."""
    ranked: list[tuple[float, Choice, int, int]] = []
    for cp, ulysses in [c for c in space.contexts() if c[1] == 1][:CONTEXTS]:
        for ep, etp in space.experts():
            for b in space.micro_batch_sizes()[:SIZES]:
                ranked += _rank(space, factory, cp, ulysses, ep, etp, b)
    tried = 0
    for _, choice, mode, stages in sorted(ranked, key=lambda r: r[0]):
        if tried >= TRIED:
            break
        if _offer(space, factory, incumbents, choice, mode, stages):
            tried += 1


def _rank(space: Space, factory: TableFactory, cp: int, ulysses: int, ep: int, etp: int, b: int) -> list[tuple[float, Choice, int, int]]:
    """(estimated seconds, choice, recompute index, stages) of every even layout that seems to fit, at the speed of the slowest group."""
    modes = space.recompute_modes()
    p = probe(space, factory, cp, ulysses, ep, etp, b, modes)
    layers, found = space.model.num_layers, []
    with np.errstate(invalid="ignore"):
        tau, activation, room = p.tau.max(axis=0), p.activation.max(axis=0), p.room.min(axis=0)
    for replicas in space.replica_counts(cp, b):
        for zero in space.zero_stages():
            choice = space.base(cp, ulysses, ep, etp, b, replicas, zero)
            for i, tp in enumerate(p.degrees):
                most = min(int(p.fit[:, i].sum()) // (cp * replicas), layers, choice.micro_batches, space.constraints.max_pp or layers)
                for stages in range(1, most + 1):
                    held = -(-layers // stages)
                    static = (p.weights[:, i].max(axis=0) if zero < 3 else 0.0) + (p.gradients[:, i].max(axis=0) if zero < 2 else 0.0)
                    flight = in_flight("1f1b", 0, stages, choice.micro_batches, 1)
                    fits = held * (static * (1.0 + (2.0 / replicas if zero else 2.0)) + activation[i] * flight) <= room[i]
                    seconds = (choice.micro_batches + stages - 1) * held * tau[i]
                    found += [(float(seconds[r]), replace(choice, alike=a), r, stages) for a in space.alikes(choice, tp)[:1] for r in range(len(modes)) if fits[r]]
    return found


def _offer(space: Space, factory: TableFactory, incumbents: Incumbents, choice: Choice, mode: int, stages: int) -> bool:
    """Price the even layout with this many stages, groups in the order given; False where it does not exist."""
    alike = choice.alike
    name = space.flat_name()
    if alike is None or name is None:
        return False
    wanted = space.recompute_modes()[mode]
    kinds = [k for k in space.kinds(replace(choice, schedule=name, alike=replace(alike, recompute=wanted)))]
    room = {k.spec.groups: space.gpus[k.spec.groups[0]] // k.gpus for k in kinds if len(k.spec.groups) == 1}
    order = [i for i, k in enumerate(kinds) if len(k.spec.groups) == 1 for _ in range(room[k.spec.groups])][:stages]
    if len(order) < stages:
        straddling = [i for i, k in enumerate(kinds) if len(k.spec.groups) > 1]
        if not straddling:
            return False
        order += [straddling[-1]] * (stages - len(order))
    picks = [StagePick(kind=i, layers=n) for i, n in zip(order, even_split(space.model.num_layers, stages), strict=True)]
    incumbents.offer(layout_of_picks(replace(choice, schedule=name), kinds, picks))
    return True
