"""A posted cluster with everything filled in: devices resolved, tiers, prices and latencies from the catalogue where the request is silent."""
from dataclasses import replace
from itertools import combinations

from solver.catalog.loader import devices, resolve_entry
from solver.catalog.records import DeviceEntry
from solver.domain.bounds import MAX_DEGREE
from solver.domain.cluster import Cluster, ClusterSpec, Device, GroupLink, InlineDevice, NodeGroup, NodeGroupSpec
from solver.errors import Assumption
from solver.importers.fabric import tiers_of, usual_latency
from solver.importers.gathering import Gathering

_OVERRIDES = ("memory_bandwidth_gb_s", "fp32_tflops", "tf32_tflops", "fp16_tflops", "bf16_tflops", "fp8_tflops", "fp4_tflops",
              "link_gb_s", "link_domain_gpus", "pcie_gb_s", "power_w")


def cluster_of(spec: ClusterSpec) -> tuple[Cluster, tuple[Assumption, ...]]:
    """The complete cluster and what was assumed; pointers are relative to the posted object. Time grows with groups and hostnames, not with GPUs."""
    gathering = Gathering()
    networked = len(spec.node_groups) > 1 or spec.node_groups[0].nodes > 1
    groups = tuple(_group(gathering, f"/node_groups/{i}", group, networked) for i, group in enumerate(spec.node_groups))
    total = sum(g.nodes * g.gpus_per_node for g in groups)
    if total > MAX_DEGREE:
        gathering.refuse("/node_groups", f"{total} GPUs in total", f"up to {MAX_DEGREE} GPUs")
    links = tuple(_link(gathering, f"/links/{i}", link) for i, link in enumerate(spec.links))
    cluster = gathering.attempt("", lambda: Cluster(name=spec.name, node_groups=groups, links=links))
    gathering.raise_if_any()
    assert cluster is not None                             # or the line above has raised
    _note_unstated_links(gathering, cluster)
    return cluster, tuple(gathering.assumptions)


def _group(gathering: Gathering, pointer: str, spec: NodeGroupSpec, networked: bool) -> NodeGroup:
    """The complete group, or, when something is wrong with it, a stand-in that keeps the names checkable until the faults are raised."""
    stand_in = NodeGroup(name=spec.name, nodes=spec.nodes, gpus_per_node=spec.gpus_per_node or 1, device=devices()[0], tiers=(), region=spec.region)
    resolved = _device(gathering, pointer, spec.gpu)
    if resolved is None:
        return stand_in
    device, entry = resolved
    gpus_per_node = spec.gpus_per_node
    if gpus_per_node is None:
        gpus_per_node = device.gpus_per_node
        note = f"not given; {gpus_per_node} is taken, usual for nodes with {device.name}"
        gathering.assume(pointer, Assumption(pointer="/gpus_per_node", message=note))
    tiers, assumed = tiers_of(spec, device, entry, gpus_per_node)
    gathering.assume(pointer, *(a for a in assumed if networked or not a.pointer.startswith("/network")))
    price = _price(gathering, pointer, spec, entry)
    group = gathering.attempt(pointer, lambda: NodeGroup(
        name=spec.name, nodes=spec.nodes, gpus_per_node=gpus_per_node, device=device, tiers=tiers, region=spec.region, price_per_gpu_hour=price,
        speed_factor=spec.speed_factor, host_memory_gib=spec.host_memory_gib, hostnames=spec.hostnames, unavailable_gpus=spec.unavailable_gpus or ()))
    return group or stand_in


def _device(gathering: Gathering, pointer: str, gpu: str | InlineDevice) -> tuple[Device, DeviceEntry] | None:
    where, name = (f"{pointer}/gpu/based_on", gpu.based_on) if isinstance(gpu, InlineDevice) else (f"{pointer}/gpu", gpu)
    found = gathering.attempt(where, lambda: resolve_entry(name))
    if found is None:
        return None
    entry, assumed = found
    gathering.assume(where, *assumed)
    return (inline_device(gpu, entry.device) if isinstance(gpu, InlineDevice) else entry.device), entry


def inline_device(inline: InlineDevice, base: Device) -> Device:
    """A catalogue device with some figures replaced. Other memory moves what the driver reports in the same proportion."""
    changes = {name: value for name in _OVERRIDES if (value := getattr(inline, name)) is not None}
    if inline.memory_gib is not None:
        changes["memory_gib"] = inline.memory_gib
        changes["reported_memory_gib"] = base.reported_memory_gib * inline.memory_gib / base.memory_gib
    return replace(base, name=inline.name, based_on=base.name, source=f"the request, on the base of {base.name}", **changes)


def _price(gathering: Gathering, pointer: str, spec: NodeGroupSpec, entry: DeviceEntry) -> float | None:
    if spec.price_per_gpu_hour is not None or entry.device.price_usd_per_hour is None:
        return spec.price_per_gpu_hour
    price = entry.device.price_usd_per_hour
    source = f"{entry.price_source}, {entry.price_as_of}" if entry.price_source else "the catalogue"
    gathering.assume(pointer, Assumption(pointer="/price_per_gpu_hour", message=f"not given; {price:g} USD is taken ({source})"))
    return price


def _link(gathering: Gathering, pointer: str, link: GroupLink) -> GroupLink:
    if link.latency_us is not None:
        return link
    latency_us, note = usual_latency(link.bandwidth_gb_s or link.total_bandwidth_gb_s or 1.0, f"{pointer}/latency_us")
    if link.total_bandwidth_gb_s is not None:
        note = replace(note, message=f"{note.message}; between distant regions it is far longer: give latency_us")
    gathering.assume("", note)
    return replace(link, latency_us=latency_us)


def _note_unstated_links(gathering: Gathering, cluster: Cluster) -> None:
    """One assumption for all pairs of groups whose link is not stated."""
    stated = {frozenset(link.between) for link in cluster.links}
    pairs = [(a, b) for a, b in combinations(cluster.node_groups, 2)
             if frozenset((a.name, b.name)) not in stated and not (a.region and b.region and frozenset((a.region, b.region)) in stated)]
    if pairs:
        a, b = pairs[0]
        more = f" (and for {len(pairs) - 1} other pairs)" if len(pairs) > 1 else ""
        gathering.assume("", Assumption(pointer="/links", message=f"no link between {a.name} and {b.name} is given{more}: "
                                        "the slower of the two groups' networks is taken"))
