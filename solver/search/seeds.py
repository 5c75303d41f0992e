"""A first plan to beat: a few thousand balanced layouts estimated from probes, the most promising laid out and priced.

They prove nothing; they prune.
"""
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from solver.search.even import even_counts
from solver.search.incumbent import Incumbents, layout_of_picks
from solver.search.labels import StagePick
from solver.search.probes import Probe, probe_of
from solver.search.space import Choice, Context, Space
from solver.search.tables import Floats, Ints, TableFactory

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
            choices = [space.base(context, b, replicas, zero) for replicas in space.replica_counts(context.cp, b) for zero in space.zero_stages()]
            ranked += _rank(space, probe_of(space, factory, context, b), choices)
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


def _rank(space: Space, p: Probe, choices: list[Choice]) -> list[Ranked]:
    """The best balanced layouts that seem to fit, on all groups together and on each alone."""
    rows = [(replace(choice, alike=alike), i, stages) for choice in choices for i, tp in enumerate(p.degrees)
            for alike in space.alikes(choice, tp)[:1] for stages in _stage_counts(space, p, choice, i)]
    if not rows:
        return []
    seconds = _estimates(p, space.model.num_layers, np.array([i for _, i, _ in rows]), np.array([stages for _, _, stages in rows]),
                         np.array([[choice.micro_batches, choice.zero_stage] for choice, _, _ in rows]))
    best = np.argsort(seconds, axis=None, kind="stable")[:TRIED]
    at = [divmod(int(n), seconds.shape[1]) for n in best if np.isfinite(seconds.flat[n])]
    return [(float(seconds[row, mode]), rows[row][0], mode, rows[row][2]) for row, mode in at]


def _stage_counts(space: Space, p: Probe, choice: Choice, degree: int) -> list[tuple[int, ...]]:
    """Stages by node group: all that there is room for, and a half, quarter and eighth of them."""
    groups, layers = range(len(space.groups)), space.model.num_layers
    room = [min(int(n), layers) for n in p.fit[:, degree] // (choice.context.cp * choice.replicas)]
    most, found = min(layers, choice.micro_batches, space.constraints.max_pp or layers), dict[tuple[int, ...], None]()
    for members in ([*groups], *([g] for g in groups if len(groups) > 1)):
        for part in (8, 4, 2, 1):
            stages = _evened(space, tuple(-(-room[g] // part) if g in members else 0 for g in groups))
            if 0 < sum(stages) <= most:
                found[stages] = None
    return list(found)


def _evened(space: Space, stages: tuple[int, ...]) -> tuple[int, ...]:
    """Where all stages hold as many layers: the most of these stages that the layers divide over, fewer of the most numerous first."""
    left = list(stages)
    while space.tier == "even" and sum(left) > 0 and space.model.num_layers % sum(left):
        left[left.index(max(left))] -= 1
    return tuple(left)


def _estimates(p: Probe, layers: int, degree: Ints, stages: Ints, of: Ints) -> Floats:
    """[N, R] seconds at perfect balance by recompute mode, infinite where the layers of the first stage of some group do not fit.

    `degree` [N], `stages` [N, G], `of` [N, 2]: micro-batches and ZeRO stage.
    """
    tau, activation, room, weights, gradients = (a[:, degree].transpose(1, 0, 2) for a in (p.tau, p.activation, p.room, p.weights, p.gradients))
    used, m, zero = (stages > 0)[:, :, None], of[:, 0, None, None], of[:, 1, None, None]                              # [N, G, 1], [N, 1, 1]
    there = np.isfinite(tau)
    rate = np.where(used & there, 1.0 / np.where(there, tau, 1.0), 0.0)                                              # [N, G, R]
    whole = np.maximum((rate * stages[:, :, None]).sum(axis=1), 1e-300)                                              # [N, R]
    held = np.where(zero < 3, weights, 0.0) + np.where(zero < 2, gradients, 0.0)
    order = np.argsort(-tau, axis=1, kind="stable")                                                                  # slower groups come first
    counts = np.take_along_axis(np.broadcast_to(stages[:, :, None], tau.shape), order, axis=1)
    behind = np.take_along_axis(np.cumsum(counts[:, ::-1], axis=1)[:, ::-1], np.argsort(order, axis=1, kind="stable"), axis=1)
    need = layers * rate / whole[:, None] * (held + activation * np.minimum(behind, m))
    fits = (~used | (there & (need <= room))).all(axis=1)
    return np.where(fits, (m[:, :, 0] + stages.sum(axis=1)[:, None] - 1) * layers / whole, np.inf)


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
