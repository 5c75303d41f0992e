"""What the catalogue's files hold, beyond the domain's own types: every figure with where it comes from and how far to trust it."""
from dataclasses import dataclass

from solver.domain.cluster import Device
from solver.domain.model import Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEntry:
    """A device with the names that people give it and the provenance of its figures."""

    device: Device
    aliases: tuple[str, ...]
    recalled_fields: tuple[str, ...]                       # figures written from memory, not looked up
    link: str                                              # row of the link tables that its fabric belongs to
    node_link: str | None = None                           # row that joins the link domains inside a node; None: PCIe does
    peer_access: bool | None = None                        # False: GPUs reach each other over PCIe only through host memory
    pcie_gen: int | None = None
    price_source: str | None = None
    price_as_of: str | None = None
    compute_capability: str | None = None
    form_factor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFamily:
    """A short name that several devices share, and the one that is meant when nothing more is said."""

    name: str
    default: str
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogLink:
    """A class of link. Bandwidths in GB/s per direction: raw, and what collectives usually achieve; latency of one hop in microseconds."""

    name: str
    link_class: str                                        # intra, intra-rack, pod, inter, fallback
    raw_gbit_s: float | None = None
    raw_gb_s: float
    achieved_gb_s: float
    typical_efficiency: float
    latency_us: float
    scope: str                                             # between what, and in which machines
    usual: bool = False                                    # assumed for a network of this bandwidth when nothing more is said
    notes: str = ""
    source: str
    recalled_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A public model. Published counts are those of its source; null where none is stated to within 1 %."""

    name: str
    architecture: Architecture
    source: str
    published_parameters: int
    published_active_parameters: int | None = None
    active_count_omits_embedding: bool = False             # the published active count leaves out the input embedding
    notes: str = ""
