"""JSON without the liberties that parsers take: no NaN, no doubled keys, no bottomless nesting, no numbers that cannot be held."""
import json
import math
import re
from collections import Counter
from typing import Any

from solver.errors import Fault

MAX_DEPTH = 48
MAX_CONTAINERS = 1_000_000
MAX_INTEGER = 2**63 - 1
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]')
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BAD_NUMBER = object()


class MalformedJson(Exception):
    """A body that is not JSON as we accept it."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(f"{f.pointer or '/'}: {f.message}" for f in faults))
        self.faults = faults


class _Doubled(dict[str, Any]):
    """An object in which a key stood more than once."""

    key: str


def parse(body: bytes) -> Any:
    """The value of a JSON text. Raises `MalformedJson` with a pointer to each fault."""
    if not body.strip():
        raise MalformedJson(Fault(pointer="", message="the body is empty", legal="a JSON object"))
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as e:
        raise MalformedJson(Fault(pointer="", message=f"byte {e.start} is not valid UTF-8", legal="JSON in UTF-8")) from e
    if (containers := body.count(b"{") + body.count(b"[")) > MAX_CONTAINERS:
        raise MalformedJson(Fault(pointer="", message=f"{containers} objects and arrays are too many", legal=f"at most {MAX_CONTAINERS}"))
    suspects: list[str] = []

    if SURROGATE.search(body):
        suspects.append("surrogate")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) == len(items):
            return found
        doubled = _Doubled(items)
        doubled.key = Counter(k for k, _ in items).most_common(1)[0][0]
        suspects.append(doubled.key)
        return doubled

    def integer(digits: str) -> Any:
        if len(digits) < 19 or (len(digits) < 25 and abs(int(digits)) <= MAX_INTEGER):
            return int(digits)
        suspects.append(digits)
        return _BAD_NUMBER

    def real(digits: str) -> Any:
        value = float(digits)
        if math.isfinite(value):
            return value
        suspects.append(digits)
        return _BAD_NUMBER

    def constant(name: str) -> Any:
        suspects.append(name)
        return _BAD_NUMBER

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_int=integer, parse_float=real, parse_constant=constant)
    except RecursionError:
        raise MalformedJson(_too_deep()) from None
    except json.JSONDecodeError as e:
        raise MalformedJson(Fault(pointer="", message=f"not valid JSON at line {e.lineno}, column {e.colno}: {e.msg}", legal="a JSON object")) from e
    if containers > MAX_DEPTH and _depth(body) > MAX_DEPTH:
        raise MalformedJson(_too_deep())
    if suspects and (faults := _faults(value, "")):         # a surrogate may be half of a whole pair
        raise MalformedJson(*faults)
    return value


def _too_deep() -> Fault:
    return Fault(pointer="", message="objects and arrays are nested too deeply", legal=f"at most {MAX_DEPTH} levels")


def _depth(body: bytes) -> int:
    """Deepest nesting of a text that is known to be valid JSON."""
    depth = deepest = 0
    for match in _BRACKET.finditer(body):
        first = match[0][0]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"]}":
            depth -= 1
    return deepest


def _faults(value: Any, pointer: str) -> list[Fault]:
    """Where the doubled keys and the bad numbers are, the first ones of many."""
    found: list[Fault] = []
    if value is _BAD_NUMBER:
        return [Fault(pointer=pointer, message="not a number that can be held",
                      legal=f"a finite number; integers from {-MAX_INTEGER} to {MAX_INTEGER}")]
    if isinstance(value, _Doubled):
        found.append(Fault(pointer=f"{pointer}/{escape(value.key)}", message=f"the key {value.key[:80]!r} stands more than once in its object",
                           legal="each key once"))
    if isinstance(value, str) and not _whole(value):
        return [Fault(pointer=pointer, message="holds half of a surrogate pair", legal="whole characters")]
    if isinstance(value, dict) and any(not _whole(key) for key in value):
        return [Fault(pointer=pointer, message="a key holds half of a surrogate pair", legal="whole characters")]
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        if len(found) >= 20:
            break
        found += _faults(child, f"{pointer}/{escape(str(key))}")
    return found


def _whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escape(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
