"""What rows of measurements have in common: names of GPUs as devices have them, and rows that could never be used refused."""
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from solver.catalog.loader import resolve_entry
from solver.catalog.names import name_key
from solver.domain.model import Architecture, layer_classes
from solver.domain.operators import AttentionProfile, GemmProfile, MemoryProfile
from solver.domain.profiles import BLOCK, EMBEDDING, HEAD, LayerProfile
from solver.errors import Assumption, Fault, InputError

Row = TypeVar("Row")


class GpuNames:
    """What each name means: a device of the cluster where one has it, else the catalogue's; of a family the member in the cluster."""

    def __init__(self, devices: Iterable[str] = ()) -> None:
        self.own = {name_key(name): name for name in devices}
        self.names: dict[str, str] = {}
        self.assumptions: list[Assumption] = []

    def of(self, gpu: str, pointer: str) -> str:
        """The device's name. Raises `UnknownName` relative to the row; what had to be assumed is noted at `pointer`."""
        if gpu not in self.names:
            self.names[gpu] = self._resolved(gpu, pointer)
        return self.names[gpu]

    def _resolved(self, gpu: str, pointer: str) -> str:
        if name_key(gpu) in self.own:
            return self.own[name_key(gpu)]
        entry, assumed = resolve_entry(gpu)
        members = [name for assumption in assumed for name in assumption.alternatives if name_key(name) in self.own]
        only = members[0] if len(members) == 1 and name_key(entry.device.name) not in self.own else entry.device.name
        if assumed:
            self.assumptions.append(Assumption(pointer=f"{pointer}/gpu", message=f"{gpu!r} names several devices; {only} is taken"))
        return only


def named(rows: Sequence[Row], names: GpuNames, pointer: str) -> tuple[Row, ...]:
    """Rows with the names of devices. Raises at the first that names none."""
    found = []
    for i, row in enumerate(rows):
        try:
            gpu = names.of(row.gpu, f"{pointer}/{i}")      # type: ignore[attr-defined]
        except InputError as error:
            raise type(error)(*(replace(fault, pointer=f"{pointer}/{i}/gpu") for fault in error.faults)) from error
        found.append(replace(row, gpu=gpu))                # type: ignore[type-var]
    return tuple(found)


def check(rows: Sequence[Row], pointer: str, rule: Callable[[Row], Iterator[Fault]], case: Callable[[Row], Any]) -> None:
    """Raise at the first row that breaks the rule, or whose case stands twice."""
    seen: set[Any] = set()
    for i, row in enumerate(rows):
        for fault in rule(row):
            raise InputError(replace(fault, pointer=f"{pointer}/{i}{fault.pointer}"))
        if case(row) in seen:
            words = ", ".join(f"{part}" for part in case(row))
            raise InputError(Fault(pointer=f"{pointer}/{i}", message=f"{words} stands twice", legal="one row each: the mean of several measurements"))
        seen.add(case(row))


def no_rule(row: object) -> Iterator[Fault]:
    del row
    return iter(())


def layer_rule(model: Architecture) -> Callable[[LayerProfile], Iterator[Fault]]:
    """Layers must be parts of the model."""
    known = (BLOCK, EMBEDDING, HEAD, *dict.fromkeys(cls.label for cls in layer_classes(model)))

    def faults(row: LayerProfile) -> Iterator[Fault]:
        if isinstance(row.layer, int) and row.layer >= model.num_layers:
            legal = f"0 to {model.num_layers - 1}"
            yield Fault(pointer="/layer", message=f"layer {row.layer} of a model with {model.num_layers} layers", legal=legal)
        if isinstance(row.layer, str) and row.layer not in known:
            legal = f"{', '.join(known)}, or a layer's index"
            yield Fault(pointer="/layer", message=f"{row.layer[:80]!r} is no part of this model", legal=legal)

    return faults


def layer_case(row: LayerProfile) -> tuple[object, ...]:
    return row.layer, row.gpu, row.tp, row.micro_batch_size


def gemm_case(row: GemmProfile) -> tuple[object, ...]:
    return row.gpu, row.precision, row.m, row.n, row.k


def attention_case(row: AttentionProfile) -> tuple[object, ...]:
    return row.gpu, row.sequences, row.seq_len, row.heads, row.head_dim, row.v_head_dim or row.head_dim, row.window or 0


def memory_case(row: MemoryProfile) -> tuple[object, ...]:
    return row.gpu, row.bytes


def ordered(rows: Iterable[Row], case: Callable[[Row], Any]) -> tuple[Row, ...]:
    """Rows in an order of their own, so that equal measurements have equal fingerprints."""
    return tuple(sorted(rows, key=lambda row: repr(case(row))))
