"""Bounds of fields, declared once as annotations: checked at birth here, and by pydantic where a type is an HTTP body."""
import functools
import math
import typing
from dataclasses import dataclass, fields
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Len

from solver.errors import Fault, InputError


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression that a whole string must match."""

    regex: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # only when pydantic itself asks

        del source, handler
        return core_schema.str_schema(pattern=f"^(?:{self.regex})$", max_length=253, strict=True)


@dataclass(frozen=True, slots=True)
class FailFast:
    """Of a long list, report the first bad entry only: a hostile body could hold a million."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "fail_fast": True}


NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
MAX_LAYERS = 4096
MAX_NODES = 100_000
MAX_GPUS_PER_NODE = 1024
MAX_DEGREE = 1_000_000

Name = Annotated[str, Pattern(NAME_PATTERN)]
Label = Annotated[str, Len(1, 253)]
Count = Annotated[int, Ge(1), Le(MAX_DEGREE)]
Size = Annotated[int, Ge(1), Le(10_000_000)]
Index = Annotated[int, Ge(0), Le(10_000_000)]
Share = Annotated[float, Ge(0.0), Le(1.0)]
Positive = Annotated[float, Gt(0.0), Le(1e15)]
NonNegative = Annotated[float, Ge(0.0), Le(1e15)]

PYDANTIC = {"extra": "forbid", "strict": True, "allow_inf_nan": False}


@functools.cache
def _checks(cls: type) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for f in fields(cls):
        marks = tuple(_marks(hints[f.name]))
        if marks:
            found.append((f.name, marks))
    return tuple(found)


def _marks(hint: Any) -> typing.Iterator[Any]:
    if typing.get_origin(hint) is Annotated:
        yield from hint.__metadata__
        yield from _marks(hint.__args__[0])
    elif type(None) in typing.get_args(hint):
        for arm in typing.get_args(hint):
            if arm is not type(None):
                yield from _marks(arm)


def _fault(value: Any, mark: Any) -> str | None:
    import re

    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    number = isinstance(value, int | float)
    if isinstance(mark, Ge) and number and not value >= mark.ge:
        return f"at least {mark.ge}"
    if isinstance(mark, Gt) and number and not value > mark.gt:
        return f"more than {mark.gt}"
    if isinstance(mark, Le) and number and not value <= mark.le:
        return f"at most {mark.le}"
    if isinstance(mark, Len) and hasattr(value, "__len__"):
        most = mark.max_length
        if len(value) < mark.min_length or (most is not None and len(value) > most):
            return f"a length from {mark.min_length} to {most}"
    if isinstance(mark, Pattern) and isinstance(value, str) and not re.fullmatch(mark.regex, value):
        return f"a match of {mark.regex}"
    return None


def refuse_bad_values(instance: Any) -> None:
    """Raise `InputError` with every field of a dataclass instance that lies outside its annotated bounds."""
    faults = []
    for name, marks in _checks(instance.__class__):
        value = getattr(instance, name)
        if value is None:
            continue
        for mark in marks:
            legal = _fault(value, mark)
            if legal:
                faults.append(Fault(pointer=f"/{name}", message=f"{str(value)[:80]!r} is out of range", legal=legal))
                break
    if faults:
        raise InputError(*faults)
