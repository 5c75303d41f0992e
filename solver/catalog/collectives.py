"""Curves of collective times per class of link, loaded from collectives.toml."""
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from solver.units import seconds_from_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One operation on one class of link: base + hops * hop * alpha + 2 sqrt(fill * x) + x seconds, x = bytes on the wire / achieved bandwidth.

    The square root is what a pipeline of well-chosen chunks costs: c chunks over stages of `fill` seconds take c * fill + x * (1 + 1 / c).
    `hop` is a share of the link's stated latency alpha. Of the stated bandwidth n ranks achieve share * (1 - few_ranks / n) * (2 / n) ^ crowding.
    """

    base_s: float = 0.0
    hop: float = 1.0
    fill_s: float = 0.0
    share: float = 1.0
    few_ranks: float = 0.0
    crowding: float = 0.0

    def achieved(self, ranks: float) -> float:
        """Share of the stated bandwidth that `ranks` ranks achieve with very large messages."""
        share = self.share * (1.0 - self.few_ranks / ranks)
        return share * (2.0 / ranks) ** self.crowding if self.crowding and ranks > 2.0 else share


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkClass:
    """Curves of one class of link.

    rails: every GPU of a block has a way out of its own, so that a message leaves the block in as many parts. mesh: GPUs are joined pair by pair, so
    that n of m GPUs use (n - 1) / (m - 1) of their links.
    """

    name: str = "ideal"
    all_reduce: Curve = Curve()
    all_gather: Curve = Curve()
    reduce_scatter: Curve = Curve()
    all_to_all: Curve = Curve()
    send: Curve = Curve()
    switch_all_reduce: Curve | None = None                 # reduction inside the switch (NVLS)
    rails: bool = True
    mesh: bool = False
    bus: bool = False                                      # shared with everything else that the host moves
    source: str = ""


IDEAL = LinkClass()
FIT = ("error", "large_error", "worst")                     # how well a curve reproduces its table
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "switch_all_reduce")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """Classes of links, which rows of the link tables belong to each, and what a fabric tier without such a row is taken for."""

    classes: Mapping[str, LinkClass]
    by_link: Mapping[str, str]
    by_tier: Mapping[str, str]

    def link_class(self, link: str, tier: str) -> LinkClass:
        """The class of a row of the link tables; of the tier's name where the row is unknown."""
        return self.classes[self.by_link.get(link) or self.by_tier.get(tier) or self.by_tier["network"]]


@functools.cache
def collectives() -> Collectives:
    """The curves that ship with this version."""
    text = resources.files("solver.catalog").joinpath("collectives.toml").read_text(encoding="utf-8")
    return collectives_of(tomllib.loads(text))


def collectives_of(data: Mapping[str, Any]) -> Collectives:
    """Curves from the parsed TOML; raises KeyError or TypeError where one is missing or unknown."""
    by_link = {link: name for name, body in data["class"].items() for link in body["links"]}
    return Collectives(classes={name: _link_class(name, body) for name, body in data["class"].items()}, by_link=by_link, by_tier=dict(data["tier"]))


def _link_class(name: str, body: Mapping[str, Any]) -> LinkClass:
    curves = {op: _curve(body[op]) for op in OPERATIONS if op in body}
    return LinkClass(name=name, rails=body["rails"], mesh=body.get("mesh", False), bus=body.get("bus", False), source=body["source"], **curves)


def _curve(body: Mapping[str, Any]) -> Curve:
    given = {key: value for key, value in body.items() if key not in FIT}
    return Curve(base_s=seconds_from_us(given.pop("base_us")), fill_s=seconds_from_us(given.pop("fill_us")), **{"hop": 0.0, **given})
