"""Choices that formulas make, of numbers and of arrays alike.

The formulas of the cost model are written for one unit. With these functions in place of `max`, `min` and conditional expressions they also take
arrays for numbers, one element per unit, and do the same arithmetic on each. Their annotations name the number.
"""
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

FEW = 500                                                  # elements up to which a dictionary finds the distinct ones faster than sorting does
Number = TypeVar("Number", int, float)


def larger(a: Number, b: Number) -> Number:
    """The larger of two."""
    try:
        return a if a >= b else b
    except ValueError:                                     # an array is neither true nor false
        return np.maximum(a, b)                            # type: ignore[no-any-return]


def smaller(a: Number, b: Number) -> Number:
    """The smaller of two."""
    try:
        return a if a <= b else b
    except ValueError:
        return np.minimum(a, b)                            # type: ignore[no-any-return]


def largest(values: Iterable[Number]) -> Number:
    """The largest of one or more."""
    return reduce(larger, values)


def smallest(values: Iterable[Number]) -> Number:
    """The smallest of one or more."""
    return reduce(smaller, values)


def where(condition: bool, a: float, b: float) -> float:
    """`a` where the condition holds, `b` elsewhere; both are worked out."""
    try:
        return a if condition else b
    except ValueError:
        return np.where(condition, a, b)                   # type: ignore[return-value]


def everywhere(condition: bool) -> bool:
    """Whether a condition holds, of arrays for all elements."""
    try:
        return bool(condition)
    except ValueError:
        return bool(condition.all())                       # type: ignore[attr-defined]


def somewhere(condition: bool) -> bool:
    """Whether a condition holds, of arrays for any element."""
    try:
        return bool(condition)
    except ValueError:
        return bool(condition.any())                       # type: ignore[attr-defined]


def root(x: float) -> float:
    """The square root."""
    try:
        return math.sqrt(x)
    except TypeError:
        return np.sqrt(x)                                  # type: ignore[no-any-return]


def chosen(values: tuple[float, ...], index: int) -> float:
    """The value at an index."""
    try:
        return values[index]
    except TypeError:
        return np.array(values)[index]                     # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Names:
    """An array of names, as indices into the distinct ones."""

    distinct: tuple[str, ...]
    index: NDArray[np.int64]


def by_name(name: Any, of: Callable[[Any], tuple[float, float]]) -> tuple[float, float]:
    """What `of` gives for a name; for `Names` what it gives for each element's."""
    if not isinstance(name, Names):
        return of(name)
    values = [of(each) for each in name.distinct]
    one, two = values[0]
    for i, value in enumerate(values[1:], start=1):
        here: Any = name.index == i
        one, two = where(here, value[0], one), where(here, value[1], two)
    return one, two


def many(*values: object) -> bool:
    """Whether any of these is an array."""
    return any(isinstance(value, np.ndarray) for value in values)


def distinct_pairs(a: Any, b: Any) -> tuple[list[tuple[int, int]], NDArray[np.intp]]:
    """The distinct pairs of two arrays of natural numbers, and which of them each element is."""
    first, second = np.broadcast_arrays(a, b)
    if first.size <= FEW:
        known: dict[tuple[int, int], int] = {}
        index = np.array([known.setdefault(pair, len(known)) for pair in zip(first.tolist(), second.tolist(), strict=True)])
        return list(known), index
    base = int(second.max()) + 1
    keys, index = np.unique(first.astype(np.int64) * base + second, return_inverse=True)
    return [divmod(key, base) for key in keys.tolist()], index
