"""JSON laid over JSON, and what is left when one is taken from the other. Lists of objects go item by item."""

from typing import Any


def merged(base: Any, extra: Any) -> Any:
    """`extra` over `base`: objects key by key, equally long lists of objects item by item, anything else replaced.

    >>> merged({"a": {"b": 1}, "c": [{"d": 1}]}, {"a": {"e": 2}, "c": [{"f": 3}]})
    {'a': {'b': 1, 'e': 2}, 'c': [{'d': 1, 'f': 3}]}
    """
    if isinstance(base, dict) and isinstance(extra, dict):
        return {
            k: merged(base[k], extra[k]) if k in base and k in extra else extra.get(k, base.get(k))
            for k in (*base, *(k for k in extra if k not in base))
        }
    if _objects(base) and _objects(extra) and len(base) == len(extra):
        return [merged(b, e) for b, e in zip(base, extra, strict=True)]
    return extra


def difference(whole: Any, part: Any) -> Any:
    """What must be merged over `part` to give `whole` again; empty when nothing is missing.

    >>> difference({"a": {"b": 1, "e": 2}, "c": [{"d": 1}]}, {"a": {"b": 1}, "c": [{"d": 1}]})
    {'a': {'e': 2}}
    """
    if isinstance(whole, dict) and isinstance(part, dict):
        rest = {k: difference(v, part[k]) if k in part else v for k, v in whole.items() if k not in part or v != part[k]}
        return rest
    if _objects(whole) and _objects(part) and len(whole) == len(part):
        return [difference(w, p) for w, p in zip(whole, part, strict=True)]
    return whole


def _objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
