"""A set of measurements to keep: operator, collective and memory figures by device, shape and precision, and layers of one named model."""
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Annotated

from annotated_types import Ge, Le, Len

from solver.domain.bounds import PYDANTIC, Count, FailFast, Label, Name, Positive, Size, refuse_bad_values
from solver.domain.model import Architecture
from solver.domain.operators import AttentionProfile, GemmProfile, MemoryProfile
from solver.domain.profiles import MAX_ROWS, CollectiveOp, LayerProfile
from solver.domain.workload import Precision
from solver.errors import Fault, InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCollective:
    """One collective between `ranks` GPUs of a type, `ranks_per_node` in each node, packed. `bytes` as in `CollectiveProfile`."""

    __pydantic_config__ = PYDANTIC
    gpu: Label
    op: CollectiveOp
    ranks: Annotated[int, Ge(2), Le(1_000_000)]
    ranks_per_node: Count
    bytes: Positive
    seconds: Positive

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        if self.ranks % self.ranks_per_node:
            raise InputError(Fault(pointer="/ranks_per_node", legal=f"a divisor of {self.ranks}",
                                   message=f"{self.ranks} ranks are no whole number of nodes with {self.ranks_per_node} each"))
        if self.op == "send_recv" and self.ranks != 2:
            raise InputError(Fault(pointer="/ranks", message=f"send_recv between {self.ranks} ranks", legal="2"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersOf:
    """What the layers of a set were measured in: a model by preset name or by its dimensions, sequence length and precision."""

    __pydantic_config__ = PYDANTIC
    preset: Label | None = None
    architecture: Architecture | None = None
    seq_len: Size
    precision: Precision = "bf16"

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        if (self.preset is None) == (self.architecture is None):
            raise InputError(Fault(pointer="", message="a model is given in exactly one way", legal="one of preset, architecture"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSet:
    """Rows that hold for every cluster with their GPUs; layers for `layers_of` alone. `source` says where the figures come from."""

    __pydantic_config__ = PYDANTIC
    source: Label | None = None
    layers_of: LayersOf | None = None
    layers: Annotated[tuple[LayerProfile, ...], Len(0, MAX_ROWS), FailFast()] = ()
    collectives: Annotated[tuple[DeviceCollective, ...], Len(0, MAX_ROWS), FailFast()] = ()
    gemms: Annotated[tuple[GemmProfile, ...], Len(0, MAX_ROWS), FailFast()] = ()
    attention: Annotated[tuple[AttentionProfile, ...], Len(0, MAX_ROWS), FailFast()] = ()
    memory: Annotated[tuple[MemoryProfile, ...], Len(0, MAX_ROWS), FailFast()] = ()

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        total = sum(self.rows.values())
        if total > MAX_ROWS:
            raise InputError(Fault(pointer="", message=f"{total} rows in all", legal=f"at most {MAX_ROWS}"))
        if bool(self.layers) != (self.layers_of is not None):
            message = "is missing: layers hold for one model" if self.layers else "is given without layers"
            raise InputError(Fault(pointer="/layers_of", message=message, legal="model, seq_len and precision that `layers` were measured in"))

    @property
    def rows(self) -> dict[str, int]:
        """How many there are of each kind."""
        return {kind: len(getattr(self, kind)) for kind in KINDS}

    def fingerprint(self) -> str:
        """Names the figures: equal ones, in the order of `solver.importers.profile_sets`, have equal digests, whatever their source."""
        body = asdict(self)
        del body["source"]
        return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedProfileSet(ProfileSet):
    """The body of POST /v1/profiles: a set, and the name that requests call it by."""

    name: Name


KINDS = ("layers", "collectives", "gemms", "attention", "memory")
