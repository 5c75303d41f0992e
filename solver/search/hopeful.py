"""Kinds of stage that may still be part of a plan that beats the best one: told from probes, before anything about them is priced."""
import numpy as np

from solver.search.bounds import SLACK
from solver.search.probes import Probe, probe_of
from solver.search.space import Choice, Kind, Space
from solver.search.tables import Floats, TableFactory


def hopeful_kinds(space: Space, factory: TableFactory, choice: Choice, cutoff: float) -> list[Kind]:
    """The kinds of a choice without those that no plan faster than `cutoff` seconds can use.

    A stage is busy for m x_k of the step, so a kind with m tau >= cutoff holds no layer. For prices λ on the GPUs of each group with Σ λ N = 1 the
    step takes at least m Σ_layers λ gpus tau: one layer of the kind, the others at the cheapest. The prices make all groups equally dear.
    """
    kinds = space.kinds(choice)
    if not np.isfinite(cutoff):
        return kinds
    work = [_work(space, factory, choice, width) for width in {k.spec.dp for k in kinds}] if choice.alike is None else []
    if not work:
        return kinds
    by_width = dict(zip({k.spec.dp for k in kinds}, work, strict=True))
    m, layers = choice.micro_batches, space.model.num_layers
    per_gpu = np.min([np.where(np.isfinite(seconds), seconds * gpus, np.inf).min(axis=(1, 2), initial=np.inf) for _, seconds, gpus in work], axis=0)
    usable = np.isfinite(per_gpu)
    price = np.where(usable, 1.0 / np.where(usable, per_gpu, 1.0), 0.0)
    price /= space.most_value(price)
    least = float((price * np.where(usable, per_gpu, 0.0))[usable].min(initial=np.inf))
    kept = []
    for kind in kinds:
        p, seconds, _ = by_width[kind.spec.dp]
        at = space.group_index[kind.spec.groups[0]], p.degrees.index(kind.spec.tp), space.recompute_modes().index(kind.spec.recompute)
        tau = float(seconds[at])
        busy = max(m * tau, m * ((layers - 1) * least + price[at[0]] * kind.gpus * tau))
        if not busy * (1 - SLACK) >= cutoff:
            kept.append(kind)
    return kept


def _work(space: Space, factory: TableFactory, choice: Choice, width: int) -> tuple[Probe, Floats, Floats]:
    """(probe, seconds of the cheapest layer [G, T, R], GPUs of a stage [T, 1]) at a width."""
    p = probe_of(space, factory, choice.context, choice.micro_batch_size // width)
    return p, p.tau, (np.array(p.degrees) * choice.context.cp * width * choice.replicas)[:, None].astype(float)
