"""Reads single values out of a config.json: types and sizes checked, every fault kept with its pointer, every default noted."""
import json
import re
import tomllib
from importlib.resources import files
from typing import Any

from solver.errors import Assumption, Fault, InputError

_FILE = tomllib.loads((files("solver.importers") / "config_keys.toml").read_text(encoding="utf-8"))
KEYS: dict[str, list[str]] = _FILE["keys"]
NOT_COVERED: dict[str, str] = _FILE["not_covered"]
INNER: dict[str, list[str]] = _FILE["inner"]
_MOST: dict[str, int] = _FILE["most"]
_LEAST: dict[str, int] = _FILE["least"]
_LFS = re.compile(r"\s*version https://git-lfs\.github\.com/spec/")


def config_of(text: str) -> dict[str, Any]:
    """The object of a config.json. Says so when the text is a Git LFS pointer, or no JSON object."""
    if _LFS.match(text):
        raise InputError(Fault(pointer="", message="this is a Git LFS pointer, not the file that it stands for",
                               legal="the file's own text (git lfs pull)"))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "; its first brace seems to be missing" if text.lstrip().startswith('"') else ""
        raise InputError(Fault(pointer="", message=f"this is no JSON: {str(error)[:120]}{hint}", legal="the text of a config.json")) from None
    if not isinstance(value, dict):
        raise InputError(Fault(pointer="", message=f"a config.json holds an object, not {_shown(value)}", legal="a JSON object"))
    return value


def _shown(value: Any) -> str:
    if isinstance(value, dict | list | tuple):
        return f"a {'list' if not isinstance(value, dict) else 'object'} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    return repr(value)[:60]


class ConfigReader:
    """One config (or the text part of one). Faults and assumptions gather here until the caller raises or returns them."""

    def __init__(self, config: dict[str, Any], pointer: str = "", outer: dict[str, Any] | None = None,
                 defaults: dict[str, int] | None = None) -> None:
        self.config = config
        self.pointer = pointer
        self.outer = outer or {}
        self.defaults = defaults or {}
        self.faults: list[Fault] = []
        self.assumptions: list[Assumption] = []

    def fault(self, key: str, message: str, legal: str) -> None:
        """Note something wrong with a key."""
        self.faults.append(Fault(pointer=f"{self.pointer}/{key}", message=message, legal=legal))

    def assume(self, key: str, message: str, *alternatives: str) -> None:
        """Note something that the file leaves open and how it was filled in."""
        self.assumptions.append(Assumption(pointer=f"{self.pointer}/{key}" if key else self.pointer, message=message, alternatives=alternatives))

    def has(self, dimension: str) -> bool:
        """Whether the file states a dimension under any of its names."""
        return any(self.config.get(key) is not None for key in KEYS[dimension])

    def key_of(self, dimension: str) -> str:
        """The name under which the file states a dimension, or at least holds null, or else its usual name."""
        stated = [key for key in KEYS[dimension] if self.config.get(key) is not None]
        return (stated or [key for key in KEYS[dimension] if key in self.config] or KEYS[dimension])[0]

    def whole(self, dimension: str) -> int | None:
        """A dimension as the file states it, or None. Two names with two values: the first is taken, and that is noted."""
        stated = [(key, self.config[key]) for key in KEYS[dimension] if self.config.get(key) is not None]
        if not stated:
            return None
        key, value = stated[0]
        others = [(k, v) for k, v in stated[1:] if v != value]
        if others:
            self.assume(key, f"{key} ({_shown(value)}) and {others[0][0]} ({_shown(others[0][1])}) disagree; {key} is taken",
                        *(f"{k} = {_shown(v)}" for k, v in others))
        return self._checked(dimension, key, value)

    def _checked(self, dimension: str, key: str, value: Any) -> int | None:
        least, most = _LEAST.get(dimension, 1), _MOST.get(dimension, _MOST["other"])
        legal = f"a whole number from {least} to {most}"
        if isinstance(value, bool) or not isinstance(value, int):
            self.fault(key, f"{_shown(value)} is no whole number", legal)
        elif not least <= value <= most:
            self.fault(key, f"{_shown(value)} is out of range", legal)
        else:
            return value
        return None

    def needed(self, dimension: str) -> int:
        """A dimension that must be there, or that the family's own class fills in. A fault stands for 1 until the caller raises."""
        if not self.has(dimension):
            if dimension in self.defaults:
                return self.defaulted(dimension, self.defaults[dimension], "the family's own default")
            keys = KEYS[dimension]
            self.fault(keys[0], "the key is missing", f"a whole number under {' or '.join(keys)}")
            return 1
        return self.whole(dimension) or 1

    def defaulted(self, dimension: str, default: int, why: str) -> int:
        """A dimension, or a default that is noted as an assumption."""
        if not self.has(dimension):
            key = self.key_of(dimension)
            self.assume(key, f"{key} is not given; {default} is taken: {why}")
            return default
        value = self.whole(dimension)
        return default if value is None else value

    def flag(self, *keys: str, default: bool, note: bool = False) -> bool:
        """The first of some yes-or-no keys that is there, in this config or the one around it."""
        for key in keys:
            for where in (self.config, self.outer):
                value = where.get(key)
                if value is None:
                    continue
                if isinstance(value, bool):
                    return value
                self.fault(key, f"{_shown(value)} is neither true nor false", "true or false")
                return default
        if note:
            self.assume(keys[0], f"{keys[0]} is not given; {str(default).lower()} is taken: the family's own default")
        return default

    def words(self, key: str, length: int) -> tuple[str, ...] | None:
        """A list of names, one per layer, or None where the key is missing."""
        value = self.config.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            self.fault(key, f"{_shown(value)} is no list of names", "a list with one name per layer")
        elif len(value) != length:
            self.fault(key, f"{len(value)} entries for {length} layers", "one per layer")
        else:
            return tuple(value)
        return None
