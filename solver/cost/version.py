"""The version of formulas and constants: part of every cache key and of every plan."""
import hashlib
from importlib.resources import files

FORMULAS = "3"                                             # raised by hand when a formula changes; constants change the rest


def _constants_digest() -> str:
    return hashlib.sha256(files("solver.catalog").joinpath("efficiency.toml").read_bytes()).hexdigest()[:10]


COST_MODEL_VERSION: str = f"{FORMULAS}.{_constants_digest()}"
