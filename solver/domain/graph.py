"""A small graph of operators to be placed on devices: what POST /v1/placements takes."""
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le, Len

from solver.domain.bounds import PYDANTIC, FailFast, Name, NonNegative, Positive, refuse_bad_values
from solver.errors import Fault, InputError

MAX_OPERATORS, MAX_DEVICES, MAX_EDGES = 64, 16, 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator: seconds on a device of speed 1, or by device where they were measured; bytes that it keeps where it runs."""

    __pydantic_config__ = PYDANTIC
    name: Name
    seconds: NonNegative
    seconds_on: dict[Name, NonNegative] | None = None      # by device; a device that is left out runs it at its speed
    memory_bytes: NonNegative = 0.0
    device: Name | None = None                             # pinned there

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """What one operator hands to another; bytes cross a link where they run on different devices."""

    __pydantic_config__ = PYDANTIC
    source: Name
    target: Name
    size_bytes: NonNegative = 0.0

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A device that runs one operator at a time."""

    __pydantic_config__ = PYDANTIC
    name: Name
    speed: Positive = 1.0
    memory_bytes: Positive | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLink:
    """The link between two devices: one transfer at a time in each direction."""

    __pydantic_config__ = PYDANTIC
    between: tuple[Name, Name]
    bandwidth_gb_s: Positive
    latency_us: NonNegative = 0.0

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """Operators of a graph without cycles, devices, and links between them. Devices without a link exchange nothing."""

    __pydantic_config__ = PYDANTIC
    operators: Annotated[tuple[Operator, ...], Len(1, MAX_OPERATORS), FailFast()]
    tensors: Annotated[tuple[Tensor, ...], Len(0, MAX_EDGES), FailFast()] = ()
    devices: Annotated[tuple[Worker, ...], Len(1, MAX_DEVICES), FailFast()]
    links: Annotated[tuple[WorkerLink, ...], Len(0, MAX_DEVICES**2), FailFast()] = ()
    work_limit: Annotated[float, Ge(0.1), Le(60.0)] = 10.0     # of the solver, in its own units, about seconds
    seed: Annotated[int, Ge(0), Le(2**31 - 1)] = 0

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        faults = [*_twice("operators", [o.name for o in self.operators]), *_twice("devices", [d.name for d in self.devices])]
        operators, devices = {o.name for o in self.operators}, {d.name for d in self.devices}
        for i, o in enumerate(self.operators):
            faults += _unknown(f"/operators/{i}/device", o.device, devices)
            faults += [f for name in o.seconds_on or {} for f in _unknown(f"/operators/{i}/seconds_on/{name}", name, devices)]
        for i, t in enumerate(self.tensors):
            faults += _unknown(f"/tensors/{i}/source", t.source, operators) + _unknown(f"/tensors/{i}/target", t.target, operators)
        for i, link in enumerate(self.links):
            faults += [f for j, end in enumerate(link.between) for f in _unknown(f"/links/{i}/between/{j}", end, devices)]
            if link.between[0] == link.between[1]:
                faults.append(Fault(pointer=f"/links/{i}/between", message="a link joins a device to itself", legal="two devices"))
        faults += _twice("links", [" and ".join(sorted(link.between)) for link in self.links])
        if not faults and len(order(self)) < len(self.operators):
            faults.append(Fault(pointer="/tensors", message="the operators depend on each other in a circle", legal="a graph without cycles"))
        if faults:
            raise InputError(*faults)


def order(graph: PlacementRequest) -> list[int]:
    """Operators, each behind all that it needs; those in or behind a circle are left out."""
    at = {o.name: i for i, o in enumerate(graph.operators)}
    needs: list[set[int]] = [set() for _ in graph.operators]
    for t in graph.tensors:
        needs[at[t.target]].add(at[t.source])
    done: list[int] = []
    while ready := [i for i in range(len(needs)) if i not in done and needs[i] <= set(done)]:
        done += ready
    return done


def _twice(what: str, names: list[str]) -> list[Fault]:
    return [Fault(pointer=f"/{what}/{i}", message=f"{n!r} stands twice", legal="names that differ") for i, n in enumerate(names) if n in names[:i]]


def _unknown(pointer: str, name: str | None, known: set[str]) -> list[Fault]:
    return [] if name is None or name in known else [Fault(pointer=pointer, message=f"{name!r} is not there", legal=", ".join(sorted(known)))]

