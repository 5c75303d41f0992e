"""The version of formulas and constants: part of every cache key and of every plan."""
import hashlib
from importlib.resources import files

FORMULAS = "3"                                             # raised by hand when a formula changes; constants change the rest


def constants() -> dict[str, bytes]:
    """Every data file that prices depend on, by name: fitted constants, collectives, and the curves of devices. The catalogue has a version of its
    own."""
    catalog = files("solver.catalog")
    found = [catalog / "efficiency.toml", catalog / "collectives.toml", *(catalog / "curves").iterdir()]
    return {path.name: path.read_bytes() for path in found if path.name.endswith(".toml")}


def version_of(data: dict[str, bytes]) -> str:
    """The formulas' number and a digest of the constants."""
    digest = hashlib.sha256()
    for name in sorted(data):
        digest.update(name.encode() + b"\0" + data[name] + b"\0")
    return f"{FORMULAS}.{digest.hexdigest()[:10]}"


COST_MODEL_VERSION: str = version_of(constants())
