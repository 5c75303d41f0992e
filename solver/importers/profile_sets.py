"""Sets of measurements: checked when they are posted, and turned into the profiles of one problem when a request names them."""
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from solver.catalog.loader import preset
from solver.domain.cluster import Cluster
from solver.domain.model import Architecture
from solver.domain.operators import AttentionProfile, GemmProfile, MemoryProfile
from solver.domain.profile_set import DeviceCollective, LayersOf, ProfileSet
from solver.domain.profiles import CollectiveProfile, Profiles
from solver.domain.workload import TrainingWorkload, Workload
from solver.errors import Assumption, Fault, InputError
from solver.importers.gathering import Gathering
from solver.importers.profile_rows import (
    GpuNames, attention_case, check, gemm_case, layer_case, layer_rule, memory_case, named, no_rule, ordered)
from solver.importers.profiles import collective_case, sorted_rows


def profile_set_of(posted: ProfileSet) -> tuple[ProfileSet, tuple[Assumption, ...]]:
    """A set with GPU names as the catalogue has them, in an order of its own. Pointers are relative to it.

    Raises with the first bad row of each list: a GPU that is not in the catalogue, a layer that the model lacks, a case that stands twice; and where
    there is no row at all.
    """
    gathering, names = Gathering(), GpuNames()
    if not any(posted.rows.values()):
        gathering.refuse("", "a set without rows", "rows of layers, collectives, gemms, attention or memory")
    rules: dict[str, tuple[Callable[[Any], Iterator[Fault]], Callable[[Any], Any]]] = {
        "collectives": (no_rule, device_collective_case), "gemms": (no_rule, gemm_case), "attention": (no_rule, attention_case),
        "memory": (no_rule, memory_case)}
    of = posted.layers_of
    model = gathering.attempt("/layers_of", lambda: model_of(of)) if of is not None else None
    if model is not None:
        rules["layers"] = layer_rule(model), layer_case
    found: dict[str, tuple[Any, ...]] = {}
    for kind, (rule, case) in rules.items():
        found[kind] = gathering.attempt("", lambda kind=kind, rule=rule, case=case: _rows(posted, names, kind, rule, case)) or ()  # type: ignore[misc]
    gathering.raise_if_any()
    return replace(posted, **found), tuple(names.assumptions)  # type: ignore[arg-type]


def _rows(posted: ProfileSet, names: GpuNames, kind: str, rule: Callable[[Any], Iterator[Fault]], case: Callable[[Any], Any]) -> tuple[Any, ...]:
    rows: tuple[Any, ...] = named(getattr(posted, kind), names, f"/{kind}")
    check(rows, f"/{kind}", rule, case)
    return ordered(rows, case)


def device_collective_case(row: DeviceCollective) -> tuple[object, ...]:
    return row.gpu, row.op, row.ranks, row.ranks_per_node, row.bytes


def model_of(of: LayersOf) -> Architecture:
    """The model of a set's layers."""
    if of.architecture is not None:
        return of.architecture
    assert of.preset is not None                           # the type refuses neither
    try:
        return preset(of.preset)
    except InputError as error:
        raise type(error)(*(replace(fault, pointer="/preset") for fault in error.faults)) from error


def used_with(kept: ProfileSet, inline: Profiles | None, model: Architecture, cluster: Cluster, workload: Workload) -> Profiles:
    """The rows of a set that hold for a problem, with those that the request brings along, which come first.

    A collective holds for every node group of its GPU whose nodes it fills alike. Raises where the set's layers are of another model, sequence length
    or precision.
    """
    before = inline or Profiles()
    _refuse_other_layers(kept, model, workload)
    collectives = [CollectiveProfile(op=row.op, groups=(group.name,), ranks=row.ranks, bytes=row.bytes, seconds=row.seconds)
                   for group in cluster.node_groups for row in kept.collectives
                   if row.gpu == group.device.name and row.ranks <= group.gpus and min(row.ranks, group.gpus_per_node) == row.ranks_per_node]
    gemms: tuple[GemmProfile, ...] = _joined(before.gemms, kept.gemms, gemm_case)
    attention: tuple[AttentionProfile, ...] = _joined(before.attention, kept.attention, attention_case)
    memory: tuple[MemoryProfile, ...] = _joined(before.memory, kept.memory, memory_case)
    return sorted_rows(replace(before, layers=_joined(before.layers, kept.layers, layer_case),
                               collectives=_joined(before.collectives, tuple(collectives), collective_case), gemms=gemms, attention=attention,
                               memory=memory))


def _joined(first: tuple[Any, ...], then: tuple[Any, ...], case: Callable[[Any], Any]) -> tuple[Any, ...]:
    known = {case(row) for row in first}
    return (*first, *(row for row in then if case(row) not in known))


def _refuse_other_layers(kept: ProfileSet, model: Architecture, workload: Workload) -> None:
    of = kept.layers_of
    if of is None or not isinstance(workload, TrainingWorkload):
        return
    measured = model_of(of)
    if replace(measured, name=model.name) != model:
        raise InputError(Fault(pointer="", message=f"its layers were measured in another model, {measured.name}",
                               legal="that model, or a set without layers"))
    if (of.seq_len, of.precision) != (workload.seq_len, workload.precision):
        raise InputError(Fault(pointer="", legal=f"seq_len {of.seq_len} in {of.precision}, or a set without layers",
                               message=f"its layers were measured at seq_len {of.seq_len} in {of.precision}, the request asks for "
                                       f"{workload.seq_len} in {workload.precision}"))
