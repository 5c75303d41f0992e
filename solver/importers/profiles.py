"""Posted profiles against the problem that they are for: names resolved, and rows that could never be used refused."""
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from solver.catalog.loader import resolve_entry
from solver.catalog.names import name_key
from solver.domain.cluster import Cluster
from solver.domain.model import Architecture, layer_classes
from solver.domain.profiles import BLOCK, EMBEDDING, HEAD, CollectiveProfile, LayerProfile, Profiles
from solver.errors import Assumption, Fault, InputError, UnknownName
from solver.importers.gathering import Gathering

Row = TypeVar("Row", LayerProfile, CollectiveProfile)


def profiles_of(profiles: Profiles, model: Architecture, cluster: Cluster) -> tuple[Profiles, tuple[Assumption, ...]]:
    """The profiles with GPU names as the cluster's devices have them, in an order of their own, so that equal measurements have equal fingerprints.

    Of each list the first bad row is reported: a list may be long. Rows for GPUs that the cluster lacks are legal.
    """
    gathering = Gathering()
    names, assumptions = _device_names(gathering, profiles, cluster)
    gathering.attempt("/layers", lambda: _check(profiles.layers, _LayerRules(model, names).faults))
    gathering.attempt("/collectives", lambda: _check(profiles.collectives, _CollectiveRules(cluster).faults))
    gathering.raise_if_any()
    layers = [replace(row, gpu=names[row.gpu]) for row in profiles.layers]
    collectives = [replace(row, groups=tuple(sorted(set(row.groups)))) for row in profiles.collectives]
    return Profiles(layers=tuple(sorted(layers, key=lambda r: (r.gpu, str(r.layer), r.tp, r.micro_batch_size))),
                    collectives=tuple(sorted(collectives, key=lambda r: (r.op, r.groups, r.ranks, r.bytes))),
                    extrapolate=profiles.extrapolate), assumptions


def _device_names(gathering: Gathering, profiles: Profiles, cluster: Cluster) -> tuple[dict[str, str], tuple[Assumption, ...]]:
    """What each name in the rows means: a device of the cluster where one has it, else the catalogue's; of a family the member in the cluster."""
    own = {name_key(g.device.name): g.device.name for g in cluster.node_groups}
    names: dict[str, str] = {}
    assumptions: list[Assumption] = []
    for i, row in enumerate(profiles.layers):
        if row.gpu in names:
            continue
        if name_key(row.gpu) in own:
            names[row.gpu] = own[name_key(row.gpu)]
            continue
        try:
            entry, assumed = resolve_entry(row.gpu)
        except UnknownName as error:
            gathering.errors.append(UnknownName(*(replace(fault, pointer=f"/layers/{i}/gpu") for fault in error.faults)))
            names[row.gpu] = row.gpu
            break
        members = [name for name in (a for assumption in assumed for a in assumption.alternatives) if name_key(name) in own]
        only = members[0] if len(members) == 1 and name_key(entry.device.name) not in own else entry.device.name
        names[row.gpu] = only
        if assumed:
            assumptions.append(Assumption(pointer=f"/layers/{i}/gpu", message=f"{row.gpu!r} names several devices; {only} is taken"))
    return {row.gpu: names.get(row.gpu, row.gpu) for row in profiles.layers}, tuple(assumptions)


def _check(rows: Sequence[Row], faults_of: Callable[[Row], Iterator[Fault]]) -> None:
    for i, row in enumerate(rows):
        for fault in faults_of(row):
            raise InputError(replace(fault, pointer=f"/{i}{fault.pointer}"))


class _LayerRules:
    """What each layer row must obey; remembers the rows before it."""

    def __init__(self, model: Architecture, names: dict[str, str]) -> None:
        self.layers, self.names, self.seen = model.num_layers, names, set[tuple[object, ...]]()
        self.known = (BLOCK, EMBEDDING, HEAD, *dict.fromkeys(cls.label for cls in layer_classes(model)))

    def faults(self, row: LayerProfile) -> Iterator[Fault]:
        if isinstance(row.layer, int) and row.layer >= self.layers:
            yield Fault(pointer="/layer", message=f"layer {row.layer} of a model with {self.layers} layers", legal=f"0 to {self.layers - 1}")
        if isinstance(row.layer, str) and row.layer not in self.known:
            yield Fault(pointer="/layer", message=f"{row.layer[:80]!r} is no part of this model",
                        legal=f"{', '.join(self.known)}, or a layer's index")
        key = (self.names[row.gpu], row.tp, row.micro_batch_size, row.layer)
        if key in self.seen:
            yield Fault(pointer="", message=f"{row.layer} on {key[0]} at tp {row.tp} with micro_batch_size {row.micro_batch_size} stands twice",
                        legal="one row each: the mean of several measurements")
        self.seen.add(key)


class _CollectiveRules:
    """The same for collectives."""

    def __init__(self, cluster: Cluster) -> None:
        self.gpus = {g.name: g.gpus for g in cluster.node_groups}
        self.seen = set[tuple[object, ...]]()

    def faults(self, row: CollectiveProfile) -> Iterator[Fault]:
        for i, name in enumerate(row.groups):
            if name not in self.gpus:
                yield Fault(pointer=f"/groups/{i}", message=f"{name!r} is no node group of the cluster", legal=", ".join(self.gpus))
        most = sum(self.gpus.get(name, 0) for name in set(row.groups))
        if row.ranks > most:
            yield Fault(pointer="/ranks", message=f"{row.ranks} ranks on {most} GPUs", legal=f"2 to {most}")
        if row.op == "send_recv" and row.ranks != 2:
            yield Fault(pointer="/ranks", message=f"send_recv between {row.ranks} ranks", legal="2")
        key = (row.op, tuple(sorted(set(row.groups))), row.ranks, row.bytes)
        if key in self.seen:
            yield Fault(pointer="", message=f"{row.op} of {row.bytes:g} bytes over {row.ranks} ranks stands twice",
                        legal="one row each: the mean of several measurements")
        self.seen.add(key)
