"""The user's own measurements of layers and collectives, used before any formula."""
import hashlib
import json
from dataclasses import asdict, astuple, dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge, Le, Len

from solver.domain.bounds import MAX_LAYERS, PYDANTIC, Count, FailFast, Label, Name, Positive, refuse_bad_values
from solver.domain.model import Architecture, LayerClass, layer_classes
from solver.domain.operators import AttentionProfile, GemmProfile, MemoryProfile
from solver.errors import Fault, InputError

CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
LayerKey = Label | Annotated[int, Ge(0), Le(MAX_LAYERS)]
BLOCK = "block"                                            # any decoder layer
EMBEDDING, HEAD = "embedding", "head"                      # the pipeline's ends
MAX_ROWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProfile:
    """One layer, or one end of the pipeline, measured on one GPU type at one TP degree: the layer's own work, with its tensor-parallel traffic.

    micro_batch_size: whole sequences that one data rank takes. layer: "block" (any decoder layer), a class of layers as "full_attention+moe", a
    layer's index, "embedding", "head". forward_s, backward_s per micro-batch, without recompute; backward holds both gradients, weight_grad_s is its
    part for weights. update_s: the optimizer step of all that one tensor rank holds. Bytes on one GPU: parameters in the training precision;
    activations kept from forward to backward without recompute; output before any scattering over tensor ranks. Measured without context or expert
    parallelism.
    """

    __pydantic_config__ = PYDANTIC
    gpu: Label
    tp: Count
    micro_batch_size: Count
    layer: LayerKey
    forward_s: Positive
    backward_s: Positive
    weight_grad_s: Positive | None = None
    update_s: Positive | None = None
    parameter_bytes: Positive | None = None
    activation_bytes: Positive | None = None
    output_bytes: Positive | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        if self.weight_grad_s is not None and self.weight_grad_s > self.backward_s:
            raise InputError(Fault(pointer="/weight_grad_s", legal="at most backward_s, of which it is a part",
                                   message=f"{self.weight_grad_s:g} s are more than the whole backward, {self.backward_s:g} s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveProfile:
    """One collective, measured: `ranks` GPUs of these node groups, packed as densely as they lie.

    bytes: the message: of all_reduce what every rank holds, of all_gather and reduce_scatter the whole that is gathered or scattered, of all_to_all
    what one rank sends (its own share included), of send_recv what is sent.
    """

    __pydantic_config__ = PYDANTIC
    op: CollectiveOp
    groups: Annotated[tuple[Name, ...], Len(1, 64)]
    ranks: Annotated[int, Ge(2), Le(1_000_000)]
    bytes: Positive
    seconds: Positive

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Measurements for this problem, used before any formula: layers before operators.

    With layers, what they do not cover (GPU type, tensor degree, sequences per data rank) is excluded unless `extrapolate`.
    """

    __pydantic_config__ = PYDANTIC
    layers: Annotated[tuple[LayerProfile, ...], Len(0, MAX_ROWS), FailFast()] = ()
    collectives: Annotated[tuple[CollectiveProfile, ...], Len(0, MAX_ROWS), FailFast()] = ()
    gemms: Annotated[tuple[GemmProfile, ...], Len(0, MAX_ROWS), FailFast()] = ()
    attention: Annotated[tuple[AttentionProfile, ...], Len(0, MAX_ROWS), FailFast()] = ()
    memory: Annotated[tuple[MemoryProfile, ...], Len(0, MAX_ROWS), FailFast()] = ()
    extrapolate: bool = False

    def __post_init__(self) -> None:
        refuse_bad_values(self)

    @property
    def empty(self) -> bool:
        """Whether there is no row of any kind."""
        return not (self.layers or self.collectives or self.gemms or self.attention or self.memory)

    def digest(self) -> str:
        """Names these measurements: equal ones, in the order that a problem keeps them, have equal digests."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def classes_of(model: Architecture, profiles: Profiles | None) -> tuple[LayerClass, ...]:
    """The class of every decoder layer, in order: layers with rows of their own are classes of their own, those with equal rows together."""
    classes = layer_classes(model)
    rows: dict[int, list[tuple[object, ...]]] = {}
    for row in profiles.layers if profiles is not None else ():
        if isinstance(row.layer, int):
            rows.setdefault(row.layer, []).append(astuple(replace(row, layer=0)))
    if not rows:
        return classes
    first: dict[tuple[object, ...], int] = {}
    found = list(classes)
    for i in sorted(rows):
        if i < len(found):
            key = (classes[i], *sorted(rows[i], key=repr))
            found[i] = replace(classes[i], measured_as=first.setdefault(key, i))
    return tuple(found)
