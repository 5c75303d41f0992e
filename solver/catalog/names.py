"""Names as people type them: case, spaces, dashes and underscores do not matter, nor does a leading vendor name."""
import difflib
import re
from collections.abc import Iterable

from solver.errors import Fault, UnknownName

_SEPARATORS = re.compile(r"[\s_\-]+")


def name_key(name: str) -> str:
    """The form under which names are compared: `NVIDIA H100_80GB HBM3` and `nvidia-h100-80gb-hbm3` both give `h100-80gb-hbm3`."""
    return _SEPARATORS.sub("-", name.strip().lower()).removeprefix("nvidia-")


def unknown_name(what: str, name: str, known: Iterable[str]) -> UnknownName:
    """The error for a name that is not in the catalogue: the closest known names, and where to find the rest."""
    by_key = {name_key(k): k for k in known}
    close = [by_key[k] for k in difflib.get_close_matches(name_key(name)[:100], by_key, n=4, cutoff=0.5)]
    legal = f"did you mean {', '.join(close)}? the catalogue lists every {what}" if close else f"a {what} that the catalogue lists"
    return UnknownName(Fault(pointer="", message=f"{name[:80]!r} is no {what} of the catalogue", legal=legal))
