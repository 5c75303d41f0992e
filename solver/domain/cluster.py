"""What it runs on: devices, node groups of equal nodes, and the links between groups.

Bandwidths are GB/s (10^9 bytes) per GPU and direction, memory is GiB, as in the HTTP contract.
"""
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le, Len

from solver.domain.bounds import (MAX_GPUS_PER_NODE, MAX_NODES, PYDANTIC, Index, Label, Name, NonNegative, Positive, refuse_bad_values)
from solver.errors import Fault, InputError

MAX_NODE_GROUPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator. Peaks are dense TFLOP/s; absent means that the device has no such unit."""

    __pydantic_config__ = PYDANTIC
    name: Label
    vendor: Label
    arch: Label                                            # key of the efficiency tables: ampere, hopper, blackwell, ...
    memory_gib: Positive                                   # what the vendor states
    reported_memory_gib: Positive                          # what the driver reports
    reserved_memory_gib: NonNegative = 0.0                 # what the driver keeps of that
    memory_bandwidth_gb_s: Positive
    fp32_tflops: Positive | None = None
    tf32_tflops: Positive | None = None
    fp16_tflops: Positive | None = None
    bf16_tflops: Positive | None = None
    fp8_tflops: Positive | None = None
    fp4_tflops: Positive | None = None
    link_type: Label
    link_gb_s: NonNegative                                 # fastest GPU-to-GPU fabric, per GPU and direction
    link_domain_gpus: Annotated[int, Ge(1), Le(100_000)]   # how many GPUs that fabric joins
    pcie_gb_s: NonNegative = 0.0
    power_w: Positive | None = None
    gpus_per_node: Annotated[int, Ge(1), Le(MAX_GPUS_PER_NODE)] = 8
    network_gb_s: Positive                                 # usual network of such nodes, per GPU
    price_usd_per_hour: Positive | None = None
    based_on: Label | None = None
    source: str = ""
    confidence: str = ""

    def __post_init__(self) -> None:
        refuse_bad_values(self)

    @property
    def capacity_gib(self) -> float:
        """Memory that a job's allocator and context share: what the driver reports, less what it reserves."""
        return self.reported_memory_gib - self.reserved_memory_gib


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineDevice:
    """A device given in the request: a catalogue entry with some figures replaced."""

    __pydantic_config__ = PYDANTIC
    name: Label
    based_on: Label
    memory_gib: Positive | None = None
    memory_bandwidth_gb_s: Positive | None = None
    fp32_tflops: Positive | None = None
    tf32_tflops: Positive | None = None
    fp16_tflops: Positive | None = None
    bf16_tflops: Positive | None = None
    fp8_tflops: Positive | None = None
    fp4_tflops: Positive | None = None
    link_gb_s: Positive | None = None
    link_domain_gpus: Annotated[int, Ge(1), Le(100_000)] | None = None
    pcie_gb_s: Positive | None = None
    power_w: Positive | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpeed:
    """Bandwidth per GPU and direction, and latency of one hop."""

    __pydantic_config__ = PYDANTIC
    bandwidth_gb_s: Positive
    latency_us: NonNegative | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnavailableGpu:
    """A GPU that must not be used: its node within the group and its index within the node."""

    __pydantic_config__ = PYDANTIC
    node: Index
    gpu: Index

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroupSpec:
    """A node group as posted: what is left out comes from the catalogue."""

    __pydantic_config__ = PYDANTIC
    name: Name
    nodes: Annotated[int, Ge(1), Le(MAX_NODES)]
    gpus_per_node: Annotated[int, Ge(1), Le(MAX_GPUS_PER_NODE)] | None = None
    gpu: Label | InlineDevice
    intra_node: LinkSpeed | None = None
    network: LinkSpeed | None = None
    region: Name | None = None
    price_per_gpu_hour: NonNegative | None = None
    speed_factor: Annotated[float, Ge(1e-3), Le(1e3)] = 1.0
    host_memory_gib: Positive | None = None
    hostnames: Annotated[tuple[Name, ...], Len(1, MAX_NODES)] | None = None
    unavailable_gpus: Annotated[tuple[UnavailableGpu, ...], Len(0, 100_000)] | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLink:
    """The link between two node groups (or two regions): per crossing GPU, or shared by all crossing traffic."""

    __pydantic_config__ = PYDANTIC
    between: tuple[Name, Name]
    bandwidth_gb_s: Positive | None = None
    total_bandwidth_gb_s: Positive | None = None
    latency_us: NonNegative | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        if (self.bandwidth_gb_s is None) == (self.total_bandwidth_gb_s is None):
            raise InputError(Fault(pointer="/bandwidth_gb_s", message="a link has exactly one of bandwidth_gb_s and total_bandwidth_gb_s",
                                   legal="one of the two, in GB/s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster as posted."""

    __pydantic_config__ = PYDANTIC
    name: Name = "cluster"
    node_groups: Annotated[tuple[NodeGroupSpec, ...], Len(1, MAX_NODE_GROUPS)]
    links: Annotated[tuple[GroupLink, ...], Len(0, 4096)] = ()

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricTier:
    """One level of the fabric inside a node group: GPUs in blocks of `size` reach each other at this speed.

    Tiers run from the fastest (smallest block) outward; the last has the size of the whole group.
    """

    size: Annotated[int, Ge(1)]
    bandwidth_gb_s: Positive
    latency_us: NonNegative
    name: str                                              # link, pcie, intra_node, network
    link: str = ""                                         # row of the link tables that it is taken for


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Equal nodes with everything filled in. `tiers` come from the posted speeds or the catalogue."""

    name: Name
    nodes: Annotated[int, Ge(1), Le(MAX_NODES)]
    gpus_per_node: Annotated[int, Ge(1), Le(MAX_GPUS_PER_NODE)]
    device: Device
    tiers: tuple[FabricTier, ...]
    region: Name | None = None
    price_per_gpu_hour: float | None = None
    speed_factor: float = 1.0
    host_memory_gib: float | None = None
    hostnames: tuple[str, ...] | None = None
    unavailable_gpus: tuple[UnavailableGpu, ...] = ()

    def __post_init__(self) -> None:
        refuse_bad_values(self)
        faults = []
        for i, gone in enumerate(self.unavailable_gpus):
            if gone.node >= self.nodes or gone.gpu >= self.gpus_per_node:
                faults.append(Fault(pointer=f"/unavailable_gpus/{i}", message=f"node {gone.node}, GPU {gone.gpu} is not in the group",
                                    legal=f"node 0 to {self.nodes - 1}, gpu 0 to {self.gpus_per_node - 1}"))
        if self.hostnames is not None and len(self.hostnames) != self.nodes:
            faults.append(Fault(pointer="/hostnames", message=f"{len(self.hostnames)} names for {self.nodes} nodes", legal="one per node"))
        if faults:
            raise InputError(*faults)

    @property
    def gpus(self) -> int:
        """Usable GPUs of the group."""
        return self.nodes * self.gpus_per_node - len({(g.node, g.gpu) for g in self.unavailable_gpus})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Node groups and the links between them, complete."""

    name: Name
    node_groups: tuple[NodeGroup, ...]
    links: tuple[GroupLink, ...] = ()

    def __post_init__(self) -> None:
        names = [g.name for g in self.node_groups]
        faults = [Fault(pointer=f"/node_groups/{i}/name", message=f"{n!r} stands twice", legal="names that differ")
                  for i, n in enumerate(names) if n in names[:i]]
        known = set(names) | {g.region for g in self.node_groups if g.region}
        for i, link in enumerate(self.links):
            for j, end in enumerate(link.between):
                if end not in known:
                    faults.append(Fault(pointer=f"/links/{i}/between/{j}", message=f"{end!r} is no node group and no region",
                                        legal=", ".join(sorted(known))))
        if faults:
            raise InputError(*faults)

    def group(self, name: str) -> NodeGroup:
        for g in self.node_groups:
            if g.name == name:
                return g
        raise InputError(Fault(pointer="/node_group", message=f"{name!r} is not in the cluster", legal=", ".join(g.name for g in self.node_groups)))

    def link_between(self, a: str, b: str) -> GroupLink | None:
        """The link stated between two groups, by their names or else by their regions; None where nothing is stated."""
        ends = {a, b}
        for link in self.links:
            if set(link.between) == ends:
                return link
        regions = {self.group(a).region, self.group(b).region}
        for link in self.links:
            if set(link.between) == regions and None not in regions:
                return link
        return None

    @property
    def gpus(self) -> int:
        return sum(g.gpus for g in self.node_groups)
