"""What the body types accept, in words: read from the same annotations that check the values."""
import functools
import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Len

from solver.domain.bounds import Pattern

PLAIN = {str: "a string", bool: "true or false", int: "an integer", float: "a number", dict: "an object", type(None): "null"}
MAX_KEYS_LISTED = 60


def arms(hint: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The alternatives of a type, each with its marks: unions are taken apart, annotations opened."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        for arm, marks in arms(hint.__origin__):
            yield arm, (*hint.__metadata__, *marks)
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(hint):
            yield from arms(part)
    else:
        yield hint, ()


@functools.cache
def hints_of(cls: type) -> dict[str, Any]:
    return {f.name: typing.get_type_hints(cls, include_extras=True)[f.name] for f in fields(cls)}


def child(hint: Any, key: str | int, tag: str | None = None) -> Any:
    """The type below `key`; `tag` picks one alternative by its class name. None where nothing is known."""
    for arm, _ in arms(hint):
        if is_dataclass(arm) and isinstance(key, str) and (tag is None or arm.__name__ == tag) and key in hints_of(arm):  # type: ignore[union-attr,arg-type]
            return hints_of(arm)[key]  # type: ignore[arg-type]
        if typing.get_origin(arm) is tuple and isinstance(key, int):
            args = typing.get_args(arm)
            return args[0] if len(args) == 2 and args[1] is Ellipsis else args[min(key, len(args) - 1)]
    return None


def known_keys(hint: Any, tag: str | None = None) -> list[str]:
    """Keys that an object of this type may have."""
    return [name for arm, _ in arms(hint) if is_dataclass(arm) and (tag is None or arm.__name__ == tag) for name in hints_of(arm)]  # type: ignore[union-attr,arg-type]


def describe(hint: Any) -> str:
    """What a value of this type looks like: "an integer from 1 to 4096 or null"."""
    return " or ".join(dict.fromkeys(_describe(arm, marks) for arm, marks in arms(hint)))


def _describe(arm: Any, marks: tuple[Any, ...]) -> str:
    origin = typing.get_origin(arm)
    if origin is Literal:
        return ", ".join(str(v) for v in typing.get_args(arm))
    if is_dataclass(arm):
        keys = known_keys(arm)
        return "an object with keys of " + ", ".join(keys[:MAX_KEYS_LISTED])
    if origin is tuple:
        args = typing.get_args(arm)
        if len(args) == 2 and args[1] is Ellipsis:
            return f"an array{_length(marks)}, each {describe(args[0])}"
        return f"an array of {len(args)}, each {describe(args[0])}"
    pattern = next((m.regex for m in marks if isinstance(m, Pattern)), None)
    if pattern is not None:
        return f"a string that matches {pattern}"
    return PLAIN.get(origin or arm, "a JSON value") + _range(marks) + _length(marks, "characters" if arm is str else "entries")


def _range(marks: tuple[Any, ...]) -> str:
    low = next((f" from {m.ge}" for m in marks if isinstance(m, Ge)), next((f" above {m.gt}" for m in marks if isinstance(m, Gt)), ""))
    high = next((f" to {m.le:g}" if isinstance(m.le, float) else f" to {m.le}" for m in marks if isinstance(m, Le)), "")
    return low + high


def _length(marks: tuple[Any, ...], unit: str = "entries") -> str:
    length = next((m for m in marks if isinstance(m, Len)), None)
    return "" if length is None else f" of {length.min_length} to {length.max_length} {unit}" if length.max_length else ""
