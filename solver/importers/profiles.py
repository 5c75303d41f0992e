"""Posted profiles against the problem that they are for: names resolved, and rows that could never be used refused."""
from collections.abc import Callable, Iterator
from dataclasses import replace

from solver.domain.cluster import Cluster
from solver.domain.model import Architecture
from solver.domain.profiles import CollectiveProfile, Profiles
from solver.errors import Assumption, Fault
from solver.importers.gathering import Gathering
from solver.importers.profile_rows import (
    GpuNames, attention_case, check, gemm_case, layer_case, layer_rule, memory_case, named, no_rule, ordered)


def profiles_of(profiles: Profiles, model: Architecture, cluster: Cluster) -> tuple[Profiles, tuple[Assumption, ...]]:
    """The profiles with GPU names as the cluster's devices have them, in an order of their own, so that equal measurements have equal fingerprints.

    Of each list the first bad row is reported: a list may be long. Rows for GPUs that the cluster lacks are legal.
    """
    gathering, names = Gathering(), GpuNames(g.device.name for g in cluster.node_groups)
    layers = gathering.attempt("", lambda: named(profiles.layers, names, "/layers")) or ()
    gemms = gathering.attempt("", lambda: named(profiles.gemms, names, "/gemms")) or ()
    attention = gathering.attempt("", lambda: named(profiles.attention, names, "/attention")) or ()
    memory = gathering.attempt("", lambda: named(profiles.memory, names, "/memory")) or ()
    collectives = tuple(replace(row, groups=tuple(sorted(set(row.groups)))) for row in profiles.collectives)
    gathering.attempt("", lambda: check(layers, "/layers", layer_rule(model), layer_case))
    gathering.attempt("", lambda: check(profiles.collectives, "/collectives", collective_rule(cluster), collective_case))
    gathering.attempt("", lambda: check(gemms, "/gemms", no_rule, gemm_case))
    gathering.attempt("", lambda: check(attention, "/attention", no_rule, attention_case))
    gathering.attempt("", lambda: check(memory, "/memory", no_rule, memory_case))
    gathering.raise_if_any()
    return sorted_rows(Profiles(layers=layers, collectives=collectives, gemms=gemms, attention=attention, memory=memory,
                                extrapolate=profiles.extrapolate)), tuple(names.assumptions)


def sorted_rows(profiles: Profiles) -> Profiles:
    """The same rows in the order that a problem keeps them."""
    return replace(profiles, layers=ordered(profiles.layers, layer_case), collectives=ordered(profiles.collectives, collective_case),
                   gemms=ordered(profiles.gemms, gemm_case), attention=ordered(profiles.attention, attention_case),
                   memory=ordered(profiles.memory, memory_case))


def collective_rule(cluster: Cluster) -> Callable[[CollectiveProfile], Iterator[Fault]]:
    """Groups must be in the cluster, and have GPUs enough."""
    gpus = {g.name: g.gpus for g in cluster.node_groups}

    def faults(row: CollectiveProfile) -> Iterator[Fault]:
        for i, name in enumerate(row.groups):
            if name not in gpus:
                yield Fault(pointer=f"/groups/{i}", message=f"{name!r} is no node group of the cluster", legal=", ".join(gpus))
        most = sum(gpus.get(name, 0) for name in set(row.groups))
        if row.ranks > most:
            yield Fault(pointer="/ranks", message=f"{row.ranks} ranks on {most} GPUs", legal=f"2 to {most}")
        if row.op == "send_recv" and row.ranks != 2:
            yield Fault(pointer="/ranks", message=f"send_recv between {row.ranks} ranks", legal="2")

    return faults


def collective_case(row: CollectiveProfile) -> tuple[object, ...]:
    return row.op, "+".join(sorted(set(row.groups))), row.ranks, row.bytes
