"""The error tree of the library.

Exceptions mean bad input (`InputError`, `UnknownName`), a request outside what this version covers (`NotCovered`),
something that a launcher cannot express (`ExportError`), or a bug of ours (`JudgeError`). "No plan" is an answer, never an exception.
"""
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong with an input: where (a JSON pointer below the object at hand), what, and what would be legal."""

    pointer: str
    message: str
    legal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something that the input left open and that we filled in; shown to the user beside the answer."""

    pointer: str
    message: str
    alternatives: tuple[str, ...] = field(default=())


class ShardwrightError(Exception):
    """Root of every error that this library raises on purpose."""


class InputError(ShardwrightError, ValueError):
    """Bad input; carries every fault that was found, not only the first."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(f"{f.pointer or '/'}: {f.message}" + (f" (legal: {f.legal})" if f.legal else "") for f in faults))
        self.faults = faults


class UnknownName(InputError):
    """A GPU, preset, link, schedule or exporter that the catalogue does not hold."""


class NotCovered(InputError):
    """A legal request for something that this version does not plan or price."""


class ExportError(ShardwrightError):
    """A plan that a launcher cannot express; the message says why and what would be expressible."""


class NothingFound(InputError):
    """The search ended at its limit with neither a plan nor a proof that there is none: more time is what is asked for."""


class JudgeError(ShardwrightError):
    """A plan of our own that the judge refuses: a bug, never stored and never exported."""
