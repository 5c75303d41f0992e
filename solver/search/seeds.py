"""A first plan to beat: a few thousand balanced layouts estimated from probes, the most promising laid out and priced.

They prove nothing; they prune.
"""
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from solver.search.even import even_counts
from solver.search.incumbent import Incumbents, layout_of_picks
from solver.search.labels import StagePick
from solver.search.probes import Probe, probe
from solver.search.space import Choice, Context, Space
from solver.search.tables import Floats, TableFactory

ENOUGH = 16                                                # legal layouts priced
TRIED = 160                                                # layouts priced at most
SIZES = 3                                                  # smallest micro-batch sizes tried
CONTEXTS = 4                                               # smallest context degrees tried
EXPERTS = 4                                                # expert degrees tried, spread from the least to the most

Ranked = tuple[float, Choice, int, tuple[int, ...]]        # estimated seconds, choice, recompute index, stages by node group


def sow(space: Space, factory: TableFactory, incumbents: Incumbents, stop: Callable[[], bool]) -> None:
    """Offer the best balanced layouts: one tensor degree and recompute mode, layers by the speed of each stage's node group, slower groups first."""
    ranked: list[Ranked] = []
    for context in _contexts(space):
        for b in space.micro_batch_sizes()[:SIZES]:
            if stop():
                break
            p = probe(space, factory, context, b, space.recompute_modes())
            for replicas in () if stop() else space.replica_counts(context.cp, b):
                for zero in space.zero_stages():
                    ranked += _rank(space, p, space.base(context, b, replicas, zero))
    legal = 0
    for _, choice, mode, stages in sorted(ranked, key=lambda r: r[0])[:TRIED]:
        legal += _offer(space, factory, incumbents, choice, mode, stages)
        if legal >= ENOUGH or stop():
            break


def _contexts(space: Space) -> list[Context]:
    plain = [c for c in space.contexts() if c.ulysses == 1 and c.etp == 1]
    few = sorted({c.cp for c in plain})[:CONTEXTS]
    degrees = sorted({c.ep for c in plain})
    spread = {degrees[round(i * (len(degrees) - 1) / (EXPERTS - 1))] for i in range(EXPERTS)} if degrees else set()
    return [c for c in plain if c.cp in few and c.ep in spread]


def _rank(space: Space, p: Probe, choice: Choice) -> list[Ranked]:
    """Balanced layouts that seem to fit, on all groups together and on each alone."""
    found: list[Ranked] = []
    groups = range(len(space.groups))
    for i, tp in enumerate(p.degrees):
        alikes = space.alikes(choice, tp)[:1]
        room = p.fit[:, i] // (choice.context.cp * choice.replicas)
        for members in ([*groups], *([g] for g in groups if len(groups) > 1)):
            counts = tuple(int(min(room[g], space.model.num_layers)) if g in members else 0 for g in groups)
            for stages in sorted({_evened(space, tuple(-(-n // part) for n in counts)) for part in (1, 2, 4, 8)}):
                total = sum(stages)
                if not alikes or not 0 < total <= min(space.model.num_layers, choice.micro_batches, space.constraints.max_pp or total):
                    continue
                for mode in range(p.tau.shape[2]):
                    seconds = _estimate(space, p, choice, i, mode, np.array(stages))
                    if seconds is not None:
                        found.append((seconds, replace(choice, alike=alikes[0]), mode, stages))
    return found


def _evened(space: Space, stages: tuple[int, ...]) -> tuple[int, ...]:
    """Where all stages hold as many layers: the most of these stages that the layers divide over, fewer of the most numerous first."""
    left = list(stages)
    while space.tier == "even" and sum(left) > 0 and space.model.num_layers % sum(left):
        left[left.index(max(left))] -= 1
    return tuple(left)


def _estimate(space: Space, p: Probe, choice: Choice, degree: int, mode: int, stages: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> float | None:
    """Seconds at perfect balance, or None where the layers of the first stage of some group do not fit."""
    used = stages > 0
    tau = p.tau[:, degree, mode]
    if not np.isfinite(tau[used]).all():
        return None
    rate = np.where(used, 1.0 / tau, 0.0)
    layers = space.model.num_layers * rate / float(rate @ stages)
    states = (p.weights[:, degree, mode] if choice.zero_stage < 3 else 0.0) + (p.gradients[:, degree, mode] if choice.zero_stage < 2 else 0.0)
    order = np.argsort(-tau)
    behind = np.cumsum(stages[order][::-1])[::-1][np.argsort(order)]                            # stages from each group's first to the last
    need = layers * (states + p.activation[:, degree, mode] * np.minimum(behind, choice.micro_batches))
    if (need[used] > p.room[:, degree, mode][used]).any():
        return None
    return float((choice.micro_batches + stages.sum() - 1) * space.model.num_layers / float(rate @ stages))


def _offer(space: Space, factory: TableFactory, incumbents: Incumbents, choice: Choice, mode: int, stages: tuple[int, ...]) -> bool:
    """Price the balanced layout; False where it does not exist or is not legal."""
    name = space.flat_name()
    if choice.alike is None or name is None:
        return False
    kinds = space.kinds(replace(choice, schedule=name, alike=replace(choice.alike, recompute=space.recompute_modes()[mode])))
    index = {k.spec.groups: i for i, k in enumerate(kinds)}
    wanted = [(index.get((g.name,)), n) for g, n in zip(space.groups, stages, strict=True) if n]
    if any(i is None for i, _ in wanted):
        return False
    tables = factory.tables(replace(choice, schedule=name), kinds)
    tau = np.diff(tables.time, axis=1).mean(axis=1)
    order = sorted((i for i, n in wanted for _ in range(n) if i is not None), key=lambda i: -tau[i])
    even = space.tier == "even"
    if even and len(order) not in even_counts(space, choice, len(order)):
        return False
    sizes = shares(space.model.num_layers, np.ones(len(order)) if even else 1.0 / tau[order])
    picks = [StagePick(kind=i, layers=n) for i, n in zip(order, sizes, strict=True)]
    return incumbents.offer(layout_of_picks(replace(choice, schedule=name), kinds, picks)) is not None


def shares(total: int, weights: Floats) -> list[int]:
    """`total` whole layers in proportion to weights, at least one each, the largest remainders first.

    >>> shares(10, np.array([1.0, 1.0, 3.0]))
    [2, 2, 6]
    """
    exact = np.maximum(weights / weights.sum() * total, 1.0)
    whole = np.floor(exact).astype(int)
    for i in np.argsort(whole - exact, kind="stable")[:max(0, total - int(whole.sum()))]:
        whole[i] += 1
    while whole.sum() > total:
        whole[int(np.argmax(whole))] -= 1
    while whole.sum() < total:
        whole[int(np.argmax(weights / whole))] += 1
    return [int(n) for n in whole]
