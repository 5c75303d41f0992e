"""Lower bounds where every stage holds as many layers: the slowest GPU in use sets the pace, however few layers would suit it better.

With p stages of L / p layers in D pipelines of m micro-batches, every stage is busy for m L / p times its time per layer. Node groups in order of
that time: where D p stages need more tensor-parallel groups than the first j - 1 node groups have, some stage has a GPU of the j-th or a slower one,
and costs no less per layer than the j-th, alone or straddling. Hence T >= m L / p x τ_j.
"""
from collections.abc import Sequence

import numpy as np

from solver.search.bounds import SLACK
from solver.search.budget import Floats
from solver.search.probes import Probe
from solver.search.space import Choice, Space, divisors


def even_counts(space: Space, choice: Choice, most: int) -> list[int | None]:
    """Numbers of stages to solve apart, since each fixes the layers of a stage; [None] where layers are free."""
    if space.tier != "even":
        return [None]
    alone = space.rules.zero_stages_of_pipelines is not None and choice.zero_stage not in space.rules.zero_stages_of_pipelines
    most = 1 if alone else min(most, space.constraints.max_pp or most)
    return [p for p in divisors(space.model.num_layers) if p <= most]


def layers_each(space: Space, choice: Choice) -> int | None:
    """Layers of every stage where they must be equal; None where each may have its own number."""
    return space.model.num_layers // choice.stages if space.tier == "even" and choice.stages is not None else None


def pace(tau: Floats, fit: Floats, groups: Floats) -> Floats:
    """Least seconds per layer [P] of the slowest stage; infinite where there are not as many tensor-parallel groups.

    `tau` [P, G]: least seconds per layer and micro-batch on each node group, infinite where a stage does not fit it; `fit` [G]: tensor-parallel
    groups there are; `groups` [P]: those in use.
    """
    order = np.argsort(tau, axis=1, kind="stable")
    slowest = (np.cumsum(fit[order], axis=1) < groups[:, None]).sum(axis=1)
    ordered = np.hstack([np.take_along_axis(tau, order, axis=1), np.full((len(groups), 1), np.inf)])
    return np.take_along_axis(ordered, slowest[:, None], axis=1)[:, 0]


def even_bound(p: Probe, tp: int, mode: int | None, zero_stage: int, blocks: int, micro_batches: int, layers: int, stages: Sequence[int]) -> float:
    """Least step seconds over numbers of stages. `blocks`: tensor-parallel groups of one stage, those of all replicas together.

    A stage holds at least the states of its layers, as far as the ZeRO stage leaves them whole, and their activations of one micro-batch.
    """
    i, modes, n = p.degrees.index(tp), slice(None) if mode is None else slice(mode, mode + 1), layers / np.array(stages, dtype=float)
    states = (p.weights[:, i, modes] if zero_stage < 3 else 0.0) + (p.gradients[:, i, modes] if zero_stage < 2 else 0.0)
    fits = n[:, None, None] * (states + p.activation[:, i, modes]) <= p.room[:, i, modes] * (1 + SLACK)
    tau = np.where(fits, p.tau[:, i, modes], np.inf).min(axis=2)
    return float((micro_batches * n * pace(tau, p.fit[:, i].astype(float), layers / n * blocks)).min())


def even_family_bound(p: Probe, cp: int, rounds: int, layers: int) -> float:
    """Over all numbers of replicas, stages and tensor degrees of a micro-batch size; `rounds`: micro-batches of all replicas together."""
    products = np.array(sorted({d * q for d in divisors(rounds) for q in divisors(layers)}), dtype=float)
    tau, least = p.tau.min(axis=2), float("inf")
    for i in range(len(p.degrees)):
        rows = np.tile(tau[:, i], (len(products), 1))
        least = min(least, float((rounds * layers / products * pace(rows, p.fit[:, i].astype(float), products * cp)).min()))
    return least
