"""The fitted constants of the cost model, loaded from efficiency.toml. Shares are of the catalogue's peak; seconds and bytes inside."""
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from solver.catalog.collectives import Collectives, collectives
from solver.domain.degrees import Framework
from solver.units import bytes_from_gib, seconds_from_ms, seconds_from_us


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShare:
    """One generation of fused attention kernels in training, forward and backward, as shares of the forward rate that the device's measured kernel
    reaches alone. Backward is for 2.5 times the FLOPs."""

    forward: float
    backward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchEfficiency:
    """What one device architecture reaches in training, over what its devices' curves say of single operators.

    narrow: rate of fp8 and fp4 products over that of the measured kernels, apart from the sustained share.
    """

    name: str
    known: bool
    sustained: float
    elementwise_share: float
    expected_error: float
    attention: Mapping[str, AttentionShare]
    source: str
    narrow: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEfficiency:
    """A device whose clock under load is far from its architecture's, or that is known less well. narrow: None: the architecture's."""

    sustained: float
    source: str
    expected_error: float = 0.0
    narrow: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Defaults of a training framework."""

    host: float
    scatter_edges: bool
    edge_copies: float
    eager_norm: bool
    attention: str
    selective_time: float
    selective_memory: float
    dispatch_once_per_node: bool
    expert_overlap: float
    gradient_overlap: float
    tensor_overlap: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerCost:
    """Bytes of state per parameter beside 16-bit weights and gradients, and bytes that one update moves."""

    state_bytes: float
    moved_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeConstants:
    fp32_share: float
    misaligned: float
    odd_head_dim: float
    power_exponent: float
    nested_power_floor: float
    unfused_gemm_share: float
    fp4_over_fp8_peak: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseConstants:
    replicated: float
    sharded: float
    eager_norm: float
    backward: float
    unfused_score_forward: float
    unfused_score_backward: float
    fp8_cast: float
    logit: float
    embedding: float
    recomputed_share_partial: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationConstants:
    tensor_contention: float
    network_share: float
    bus_share: float
    overlap_slowdown: float
    interleaved_edge_share: float
    edge_bytes: float = 1.0                                # over a stage boundary, of those of the formula; another value only by calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelConstants:
    exposed_share: float
    optimizer_bandwidth_share: float
    step_overhead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConstants:
    forward_s: float
    backward_s: float
    recompute_s: float
    tensor_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MoEConstants:
    """Layers with routed experts; host times are added to those of a dense layer."""

    grouped_share: float
    dispatch_bytes: float
    network_gain: float
    host_s: float
    host_expert_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StackMemory:
    """How a training framework keeps logits, states and activations."""

    logit_bytes: float                                     # per logit, at the loss
    logits_freed: bool                                     # before the layers run backward
    weights_are_master: bool                               # ZeRO-3 shards fp32 weights, which are the master copy
    both_gradients: bool                                   # 16-bit gradients beside their fp32 sums
    dropout: bool                                          # on by default
    sequence_first: bool                                   # activations are [s, b, h]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConstants:
    """Bytes of devices and libraries; bytes per element, as the comments of the data say; and the habits of frameworks."""

    context_bytes: float
    dimension_bytes: float
    fragmentation: float
    workspace_bytes: float
    fused_workspace_bytes: Mapping[str, float]             # by architecture
    norm_bytes: float
    eager_norm_bytes: float
    score_bytes: float
    score_dropout_bytes: float
    eager_score_bytes: float
    eager_score_gradient_bytes: float
    softmax_bytes: float
    gathered_logit_bytes: float
    gathered_logit_copies: float
    router_bytes: float
    expert_imbalance: float
    gathered_layers: float
    temporary_bytes: float
    stacks: Mapping[str, StackMemory]
    held: float = 1.0                                      # of a layer's bytes by formula, what is allocated; another value only by calibration

    def stack(self, framework: Framework | None) -> StackMemory:
        """The habits of a framework; of `default` where none is named or it has none of its own."""
        return self.stacks.get(framework or "default", self.stacks["default"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertConfidence:
    """What measured training runs with experts cover: up to so many experts and ranks of an expert group, from so many rows of an expert on."""

    error: float
    experts: int
    ranks: int
    rows: int
    per_doubling: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceConstants:
    experts: ExpertConfidence
    preview_factor: float
    scaled_factor: float
    profile_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Every fitted constant."""

    version: str
    archs: Mapping[str, ArchEfficiency]
    devices: Mapping[str, DeviceEfficiency]
    stacks: Mapping[str, Stack]
    collectives: Collectives
    optimizers: Mapping[str, OptimizerCost]
    compute: ComputeConstants
    elementwise: ElementwiseConstants
    communication: CommunicationConstants
    data_parallel: DataParallelConstants
    host: HostConstants
    moe: MoEConstants
    memory: MemoryConstants
    confidence: ConfidenceConstants

    def arch(self, name: str) -> ArchEfficiency:
        """The constants of an architecture; of `default` where it has none of its own."""
        return self.archs.get(name, self.archs["default"])

    def stack(self, framework: Framework | None) -> Stack:
        """The defaults of a framework; of `default` where none is named."""
        return self.stacks[framework or "default"]


@functools.cache
def efficiency() -> Efficiency:
    """The constants that ship with this version."""
    text = resources.files("solver.catalog").joinpath("efficiency.toml").read_text(encoding="utf-8")
    return efficiency_of(tomllib.loads(text))


def efficiency_of(data: Mapping[str, Any]) -> Efficiency:
    """Constants from the parsed TOML; raises KeyError or TypeError where a constant is missing or unknown."""
    data_parallel = dict(data["data_parallel"])
    return Efficiency(
        version=data["version"],
        archs={name: _arch(name, body) for name, body in data["arch"].items()},
        devices={name: DeviceEfficiency(**body) for name, body in data["device"].items()},
        stacks={name: Stack(**body) for name, body in data["stack"].items()},
        collectives=collectives(),
        optimizers={name: OptimizerCost(state_bytes=b["state_bytes"], moved_bytes=b["moved_bytes"]) for name, b in data["optimizer"].items()},
        compute=ComputeConstants(**data["compute"]),
        elementwise=ElementwiseConstants(**data["elementwise"]),
        communication=CommunicationConstants(**data["communication"]),
        data_parallel=DataParallelConstants(step_overhead_s=seconds_from_ms(data_parallel.pop("step_overhead_ms")), **data_parallel),
        host=HostConstants(**_in_seconds(data["host"])),
        moe=MoEConstants(**_in_seconds(data["moe"])),
        memory=_memory(dict(data["memory"])),
        confidence=ConfidenceConstants(**data["confidence"] | {"experts": ExpertConfidence(**data["confidence"]["experts"])}),
    )


def _in_seconds(body: Mapping[str, float]) -> dict[str, float]:
    """Names that end in _us as seconds."""
    return {name.removesuffix("_us") + "_s" if name.endswith("_us") else name: seconds_from_us(value) if name.endswith("_us") else value
            for name, value in body.items()}


def _memory(body: dict[str, Any]) -> MemoryConstants:
    stacks, fused = body.pop("stack"), body.pop("fused_workspace_gib")
    sizes = {name.removesuffix("_gib") + "_bytes": bytes_from_gib(body.pop(name)) for name in ("context_gib", "dimension_gib", "workspace_gib")}
    return MemoryConstants(stacks={name: StackMemory(**{**stacks["default"], **habits}) for name, habits in stacks.items()},
                           fused_workspace_bytes={arch: bytes_from_gib(size) for arch, size in fused.items()}, **sizes, **body)


def _arch(name: str, body: Mapping[str, Any]) -> ArchEfficiency:
    attention = {kernel: AttentionShare(**share) for kernel, share in body["attention"].items()}
    return ArchEfficiency(name=name, known=name != "default", attention=attention, **{k: v for k, v in body.items() if k != "attention"})
