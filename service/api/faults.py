"""Faults of a body: pydantic's complaints turned into exact JSON pointers, plain words, and what would be legal."""
import difflib
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from service.api.hints import child, describe, known_keys
from service.api.strict_json import escape
from solver.errors import Fault, InputError

MAX_FAULTS = 100
MAX_COMPLAINTS = 2000                                      # looked at: one fault can be several complaints, and a hostile body a million
WRONG_TYPE = ("dataclass_type", "dataclass_exact_type", "string_type", "int_type", "float_type", "bool_type", "tuple_type", "dict_type",
              "literal_error", "int_from_float", "list_type", "none_required")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a complaint points: the pointer's parts, the alternatives that were tried on the way (by depth), and the type at hand."""

    parts: tuple[str | int, ...]
    tags: tuple[tuple[int, str], ...]
    hint: Any
    parent: Any
    value: Any

    @property
    def pointer(self) -> str:
        return "".join(f"/{escape(str(p))}" for p in self.parts)


def faults_of(error: ValidationError, body: Any, root: Any) -> tuple[Fault, ...]:
    """Every fault that pydantic found in `body`, as read into the type `root`."""
    found = [(e, _place(e["loc"], e["type"], body, root)) for e in error.errors(include_url=False, include_input=False)[:MAX_COMPLAINTS]]
    faults: dict[tuple[str, str], Fault] = {}
    for e, place in _likely([f for f in found if not _only_without_the_bad(*f)]):
        for fault in _faults(e, place):
            faults.setdefault((fault.pointer, fault.message), fault)
    return tuple(faults.values())[:MAX_FAULTS]


def _only_without_the_bad(e: Any, place: _Place) -> bool:
    """Whether an array is too short only because pydantic does not count its entries at fault: those are named themselves."""
    return e["type"] == "too_short" and isinstance(place.value, list | dict) and len(place.value) >= e["ctx"]["min_length"]


def _place(loc: tuple[int | str, ...], kind: str, body: Any, root: Any) -> _Place:
    """Walk body and type along pydantic's location, which mixes keys with the names of the alternatives tried."""
    parts: list[str | int] = []
    tags: list[tuple[int, str]] = []
    hint, parent, value, tag = root, root, body, None
    for i, step in enumerate(loc):
        names = isinstance(value, dict) and isinstance(step, str) and step in value
        indexes = isinstance(value, list) and isinstance(step, int) and step < len(value)
        absent = kind in ("missing", "missing_keyword_only_argument") and i == len(loc) - 1
        if names or indexes or absent:
            parent, hint = hint, child(hint, step, tag) if hint is not None else None
            value = value[step] if not absent else None
            parts.append(step)
            tag = None
        else:
            tag = str(step)
            tags.append((len(parts), tag))
    return _Place(tuple(parts), tuple(tags), hint, parent, value)


def _likely(found: list[tuple[Any, _Place]]) -> list[tuple[Any, _Place]]:
    """Where a value was tried as one of several things, keep the complaints of what it was most likely meant to be."""
    dropped: set[int] = set()
    unions: dict[tuple[str | int, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, (_, place) in enumerate(found):
        for depth, tag in place.tags:
            unions[place.parts[:depth]][tag].append(i)
    for at, by_tag in unions.items():
        fitting = {t: ids for t, ids in by_tag.items() if not any(_misfit(found[i], at) for i in ids)}
        if len(fitting) > 1:                                # objects of several kinds: the one whose `kind` agrees
            fitting = {t: ids for t, ids in fitting.items() if not any(found[i][1].parts == (*at, "kind") for i in ids)} or fitting
        if fitting:
            dropped.update(i for t, ids in by_tag.items() if t not in fitting for i in ids)
    return [f for i, f in enumerate(found) if i not in dropped]


def _misfit(complaint: tuple[Any, _Place], at: tuple[str | int, ...]) -> bool:
    return complaint[1].parts == at and complaint[0]["type"] in WRONG_TYPE


def _faults(e: Any, place: _Place) -> list[Fault]:
    kind, shown = e["type"], _shown(place.value)
    if kind == "value_error" and isinstance(cause := e.get("ctx", {}).get("error"), InputError):
        return [Fault(pointer=place.pointer + f.pointer, message=f.message, legal=f.legal) for f in cause.faults]
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        return [_unknown_key(place)]
    legal = describe(place.hint) if place.hint is not None else None
    if kind in ("missing", "missing_keyword_only_argument"):
        return [Fault(pointer=place.pointer, message="is missing", legal=legal)]
    if any(depth == len(place.parts) for depth, _ in place.tags) or kind in WRONG_TYPE:
        return [Fault(pointer=place.pointer, message=f"{shown} is not of a legal kind", legal=legal)]
    if kind in ("too_short", "too_long") and isinstance(place.value, list | dict):
        return [Fault(pointer=place.pointer, message=f"{shown} of {len(place.value)} entries", legal=legal)]
    return [Fault(pointer=place.pointer, message=f"{shown}: {e['msg'][0].lower()}{e['msg'][1:]}", legal=legal)]


def _unknown_key(place: _Place) -> Fault:
    tag = next((t for depth, t in place.tags if depth == len(place.parts) - 1), None)
    known = known_keys(place.parent, tag) if place.parent is not None else []
    close = difflib.get_close_matches(str(place.parts[-1]), known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return Fault(pointer=place.pointer, message=f"unknown key {str(place.parts[-1])[:80]!r}{hint}", legal="one of " + ", ".join(known))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)[:80]
