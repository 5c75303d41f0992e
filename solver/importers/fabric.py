"""The tiers of a node group's fabric: from the speeds that a request states, or else from the catalogue."""
import math

from solver.catalog.loader import link, links
from solver.catalog.records import CatalogLink, DeviceEntry
from solver.domain.cluster import Device, FabricTier, NodeGroupSpec
from solver.errors import Assumption

STATED_PCIE = 1.25                                         # a stated fabric of up to so many times the device's PCIe is PCIe
STAGED = "host-memory-staging"                             # row of the link tables that stands for PCIe without peer access


def usual_network(bandwidth_gb_s: float) -> CatalogLink:
    """The usual kind of network of a bandwidth (GB/s per GPU and direction): the marked row whose raw rate is closest in ratio."""
    usual = [row for row in links() if row.usual]
    return min(usual, key=lambda row: abs(math.log(row.raw_gb_s / bandwidth_gb_s)))


def usual_latency(bandwidth_gb_s: float, pointer: str) -> tuple[float, Assumption]:
    """The latency (us) of a network of which only the bandwidth is known, and the assumption that says so."""
    row = usual_network(bandwidth_gb_s)
    others = tuple(f"{r.name}: {r.latency_us:g} us" for r in links() if r.link_class == "inter" and r.raw_gb_s == row.raw_gb_s and r.name != row.name)
    message = f"no latency is given; {row.latency_us:g} us is taken, that of {row.name}"
    return row.latency_us, Assumption(pointer=pointer, message=message, alternatives=others)


def tiers_of(spec: NodeGroupSpec, device: Device, entry: DeviceEntry, gpus_per_node: int) -> tuple[tuple[FabricTier, ...], tuple[Assumption, ...]]:
    """The tiers of a group, the node's own fabric first, its network last, and what was assumed (pointers relative to the group)."""
    stated = spec.intra_node is not None
    inside, assumed = _stated(spec, device, entry, gpus_per_node) if stated else (_inside(spec, device, entry, gpus_per_node), ())
    network, assumed_too = _network(spec, device, spec.nodes * gpus_per_node)
    return (*inside, network), (*assumed, *assumed_too)


def _stated(spec: NodeGroupSpec, device: Device, entry: DeviceEntry, gpus_per_node: int) -> tuple[tuple[FabricTier, ...], tuple[Assumption, ...]]:
    """The stated fabric of a node: the device's own where it is faster than PCIe, else PCIe with peer access."""
    if spec.intra_node is None or gpus_per_node == 1:
        return (), ()
    assumed: tuple[Assumption, ...] = ()
    latency_us = spec.intra_node.latency_us
    bus = entry.link.startswith("pcie") or spec.intra_node.bandwidth_gb_s <= STATED_PCIE * device.pcie_gb_s
    row = _pcie(entry) if bus else link(entry.link)
    if latency_us is None:
        latency_us = row.latency_us
        message = f"no latency is given; {latency_us:g} us is taken, that of {row.name}"
        assumed = (Assumption(pointer="/intra_node/latency_us", message=message),)
    tier = FabricTier(size=gpus_per_node, bandwidth_gb_s=spec.intra_node.bandwidth_gb_s, latency_us=latency_us, name="intra_node", link=row.name)
    return (tier,), assumed


def _inside(spec: NodeGroupSpec, device: Device, entry: DeviceEntry, gpus_per_node: int) -> tuple[FabricTier, ...]:
    """The device's own fabric, and where that does not join the whole node the link between its domains: the device's own again, or PCIe."""
    tiers = []
    size = domain_size(device, gpus_per_node, spec.nodes)
    if size > 1 and device.link_gb_s > 0:
        tiers.append(FabricTier(size=size, bandwidth_gb_s=device.link_gb_s, latency_us=link(entry.link).latency_us, name="link", link=entry.link))
    if size < gpus_per_node and entry.node_link is not None:
        row = link(entry.node_link)
        tiers.append(FabricTier(size=gpus_per_node, bandwidth_gb_s=row.raw_gb_s, latency_us=row.latency_us, name="intra_node", link=row.name))
    elif size < gpus_per_node and device.pcie_gb_s > 0:
        row = _pcie(entry)
        tiers.append(FabricTier(size=gpus_per_node, bandwidth_gb_s=device.pcie_gb_s, latency_us=row.latency_us, name="pcie",
                                link=STAGED if entry.peer_access is False else row.name))
    return tuple(tiers)


def domain_size(device: Device, gpus_per_node: int, nodes: int) -> int:
    """How many GPUs of the group one link domain joins.

    A domain wider than the device's usual node (NVL72, a pod) spans whole nodes; any other ends at the node, and two do not join across PCIe.
    """
    if device.link_domain_gpus <= device.gpus_per_node:
        return min(device.link_domain_gpus, gpus_per_node)
    whole_nodes = max(1, min(nodes, device.link_domain_gpus // gpus_per_node))
    return min(device.link_domain_gpus, whole_nodes * gpus_per_node)


def _pcie(entry: DeviceEntry) -> CatalogLink:
    return link(f"pcie{entry.pcie_gen or 4}-x16")


def _network(spec: NodeGroupSpec, device: Device, gpus: int) -> tuple[FabricTier, tuple[Assumption, ...]]:
    assumed = []
    if spec.network is None:
        bandwidth, latency_us = device.network_gb_s, None
        message = f"no network is given; {bandwidth:g} GB/s per GPU is taken, usual for nodes with {device.name}"
        assumed.append(Assumption(pointer="/network", message=message))
    else:
        bandwidth, latency_us = spec.network.bandwidth_gb_s, spec.network.latency_us
    if latency_us is None:
        latency_us, note = usual_latency(bandwidth, "/network/latency_us")
        assumed.append(note)
    return FabricTier(size=gpus, bandwidth_gb_s=bandwidth, latency_us=latency_us, name="network", link=usual_network(bandwidth).name), tuple(assumed)
