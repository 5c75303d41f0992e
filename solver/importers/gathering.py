"""Collects what goes wrong in the parts of a request, so that every fault is reported at once."""
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from solver.errors import Assumption, Fault, InputError, NotCovered, UnknownName

T = TypeVar("T")


def merged(errors: Sequence[InputError]) -> InputError:
    """One error with the faults of all: of their common class, else plain bad input."""
    faults = [fault for error in errors for fault in error.faults]
    for cls in (NotCovered, UnknownName):
        if errors and all(isinstance(error, cls) for error in errors):
            return cls(*faults)
    return InputError(*faults)


class Gathering:
    """Runs the parts of a request one by one; their faults and assumptions are kept with pointers below the whole."""

    def __init__(self) -> None:
        self.errors: list[InputError] = []
        self.assumptions: list[Assumption] = []

    def attempt(self, pointer: str, part: Callable[[], T]) -> T | None:
        """The value of a part, or None when it raised bad input."""
        try:
            return part()
        except InputError as error:
            self.errors.append(type(error)(*(replace(fault, pointer=pointer + fault.pointer) for fault in error.faults)))
            return None

    def refuse(self, pointer: str, message: str, legal: str, kind: type[InputError] = InputError) -> None:
        """Note one fault."""
        self.errors.append(kind(Fault(pointer=pointer, message=message, legal=legal)))

    def assume(self, pointer: str, *assumptions: Assumption) -> None:
        """Note what a part assumed."""
        self.assumptions.extend(replace(a, pointer=pointer + a.pointer) for a in assumptions)

    def raise_if_any(self) -> None:
        """Raise everything that went wrong as one error."""
        if self.errors:
            raise merged(self.errors)
