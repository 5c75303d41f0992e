"""Reads the catalogue: data files beside this module, read once, each figure with its source."""
import functools
import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from solver.catalog.names import name_key, unknown_name
from solver.catalog.records import CatalogLink, DeviceEntry, DeviceFamily, Preset
from solver.domain.cluster import Device
from solver.domain.model import MLA, Architecture, MoE
from solver.errors import Assumption
from solver.units import GIB, MIB

_ROOT = files("solver.catalog")
_FOLDERS = ("curves", "devices", "links", "models")
_DEVICE_FIELDS = frozenset(f.name for f in fields(Device))
_WHOLE = frozenset({"link_domain_gpus", "gpus_per_node", "usual"})


def _data_files() -> Iterator[tuple[str, Traversable]]:
    for folder in ("", *_FOLDERS):
        for path in sorted((_ROOT / folder if folder else _ROOT).iterdir(), key=lambda p: p.name):
            if path.name.endswith(".toml"):
                yield f"{folder}/{path.name}".lstrip("/"), path


@functools.cache
def _tables(prefix: str, table: str) -> tuple[dict[str, Any], ...]:
    found: list[dict[str, Any]] = []
    for name, path in _data_files():
        if name.startswith(prefix):
            found.extend(tomllib.loads(path.read_text(encoding="utf-8")).get(table, []))
    return tuple(found)


def _digest() -> str:
    total = hashlib.sha256()
    for name, path in _data_files():
        total.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]


CATALOGUE_VERSION: str = _digest()


@functools.cache
def device_entries() -> tuple[DeviceEntry, ...]:
    """Every device of the catalogue with its aliases and provenance."""
    return tuple(_device_entry(row) for row in _tables("devices/", "device"))


def _device_entry(row: dict[str, Any]) -> DeviceEntry:
    figures = {k: _figure(k, v) for k, v in row.items() if k in _DEVICE_FIELDS}
    reported_mib = row.get("reported_memory_mib")
    reported_gib = reported_mib * MIB / GIB if reported_mib is not None else row["memory_gib"]
    optional = {k: row.get(k) for k in ("node_link", "peer_access", "pcie_gen", "price_source", "price_as_of", "compute_capability", "form_factor")}
    return DeviceEntry(device=Device(reported_memory_gib=float(reported_gib), **figures), aliases=tuple(row["aliases"]),
                       recalled_fields=tuple(row["recalled"]), link=row["link"], **optional)


def _figure(key: str, value: Any) -> Any:
    """Figures with a unit are floats, however the file writes them: 80 and 80.0 give one fingerprint."""
    return float(value) if isinstance(value, int) and key not in _WHOLE else value


@functools.cache
def device_families() -> tuple[DeviceFamily, ...]:
    """Short names that several devices share."""
    return tuple(DeviceFamily(name=row["name"], default=row["default"], candidates=tuple(row["candidates"])) for row in _tables("families", "family"))


@functools.cache
def _entries_by_key() -> dict[str, DeviceEntry]:
    by_key: dict[str, DeviceEntry] = {}
    for entry in device_entries():
        for alias in entry.aliases:
            by_key[name_key(alias)] = entry
    for entry in device_entries():
        by_key[name_key(entry.device.name)] = entry
    return by_key


@functools.cache
def _families_by_key() -> dict[str, DeviceFamily]:
    return {name_key(f.name): f for f in device_families()}


def resolve_entry(name: str) -> tuple[DeviceEntry, tuple[Assumption, ...]]:
    """The entry that a name, alias or family means, with an assumption where a family has several members."""
    family = _families_by_key().get(name_key(name))
    entry = _entries_by_key().get(name_key(family.default if family else name))
    if entry is None:
        raise unknown_name("GPU", name, [e.device.name for e in device_entries()] + [a for e in device_entries() for a in e.aliases])
    others = tuple(c for c in family.candidates if c != family.default) if family else ()
    if not others:
        return entry, ()
    return entry, (Assumption(pointer="", message=f"{name!r} names several devices; {entry.device.name} is taken", alternatives=others),)


def catalog_entry(name: str) -> DeviceEntry:
    """Like `resolve_entry`, for those who only look things up."""
    return resolve_entry(name)[0]


@functools.cache
def devices() -> tuple[Device, ...]:
    """Every device of the catalogue."""
    return tuple(e.device for e in device_entries())


def device(name: str) -> tuple[Device, tuple[Assumption, ...]]:
    """The device that a name, alias or family means. Raises `UnknownName` with the closest names."""
    entry, assumptions = resolve_entry(name)
    return entry.device, assumptions


@functools.cache
def links() -> tuple[CatalogLink, ...]:
    """Every class of link of the catalogue."""
    return tuple(_link(row) for row in _tables("links/", "link"))


def _link(row: dict[str, Any]) -> CatalogLink:
    figures = {k: _figure(k, v) for k, v in row.items() if k not in ("class", "recalled")}
    return CatalogLink(link_class=row["class"], recalled_fields=tuple(row["recalled"]), **figures)


@functools.cache
def _links_by_name() -> dict[str, CatalogLink]:
    return {row.name: row for row in links()}


def link(name: str) -> CatalogLink:
    """The class of link of this name. Raises `UnknownName` with the closest names."""
    row = _links_by_name().get(name)
    if row is None:
        raise unknown_name("link", name, _links_by_name())
    return row


@functools.cache
def presets() -> tuple[Preset, ...]:
    """Every model of the catalogue."""
    return tuple(_preset(row) for row in _tables("models/", "model"))


def _preset(row: dict[str, Any]) -> Preset:
    body = dict(row["architecture"])
    if "moe" in body:
        body["moe"] = MoE(**body["moe"])
    if "mla" in body:
        body["mla"] = MLA(**body["mla"])
    if "layer_types" in body:                              # files give one period of the pattern
        period = body["layer_types"]
        body["layer_types"] = tuple(period[i % len(period)] for i in range(body["num_layers"]))
    return Preset(name=row["name"], architecture=Architecture(name=row["name"], **body), source=row["source"],
                  published_parameters=row["published_parameters"], published_active_parameters=row.get("published_active_parameters"),
                  active_count_omits_embedding=row.get("active_count_omits_embedding", False), notes=row.get("notes", ""))


@functools.cache
def _presets_by_key() -> dict[str, Preset]:
    return {name_key(p.name): p for p in presets()}


def preset(name: str) -> Architecture:
    """The model of this name. Raises `UnknownName` with the closest names."""
    found = _presets_by_key().get(name_key(name))
    if found is None:
        raise unknown_name("model", name, [p.name for p in presets()])
    return found.architecture
