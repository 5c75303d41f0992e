"""The form and the request body, in both directions. The body is judged by the same parser as POST /v1/plans; nothing is validated here."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from service.web.fields import BY_MODEL_KIND, CLUSTER, CONSTRAINTS, FIXED, GROUP, LINK, MODEL_KINDS, WORKLOAD, Field
from service.web.merge import difference, merged
from solver.errors import Fault

MAX_ROWS = 64
Row = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormState:
    """What stands in the form: text as typed, by field name; one dict per node group and per link."""

    model_kind: str = "preset"
    values: Row = field(default_factory=dict)
    groups: tuple[Row, ...] = ({},)
    links: tuple[Row, ...] = ()
    extra: str = ""  # JSON merged over the rest: what the form has no field for


def empty_state() -> FormState:
    """A new form: defaults filled in, one empty node group."""
    return FormState(values={f.name: f.default for f in FIXED.values() if f.default})


def state_of_form(data: Mapping[str, str]) -> FormState:
    """The state that a posted form stands for."""
    kind = data.get("model_kind", "preset")
    return FormState(
        model_kind=kind if kind in MODEL_KINDS else "preset",
        values={name: data[name].strip() for name in FIXED if data.get(name, "").strip()},
        groups=tuple(_rows(data, "group", GROUP)),
        links=tuple(_rows(data, "link", LINK)),
        extra=data.get("extra", "").strip(),
    )


def _rows(data: Mapping[str, str], prefix: str, fields: tuple[Field, ...]) -> Iterator[Row]:
    numbers = {int(m[1]) for key in data if (m := re.fullmatch(rf"{prefix}\.(\d{{1,3}})\.\w+", key))}
    for i in sorted(numbers)[:MAX_ROWS]:
        yield {f.name: data.get(f"{prefix}.{i}.{f.name}", "").strip() for f in fields}


def edited(state: FormState, action: str) -> FormState:
    """The state after one of the row buttons: add-group, add-link, remove-group-2, remove-link-0."""
    if action == "add-group":
        return replace(state, groups=(*state.groups, {})[:MAX_ROWS])
    if action == "add-link":
        names = [g.get("name", "") for g in state.groups]
        ends = {"a": names[0], "b": names[1]} if len(names) > 1 else {}
        return replace(state, links=(*state.links, ends)[:MAX_ROWS])
    if m := re.fullmatch(r"remove-(group|link)-(\d{1,3})", action):
        rows = state.groups if m[1] == "group" else state.links
        kept = tuple(r for i, r in enumerate(rows) if i != int(m[2]))
        return replace(state, groups=kept) if m[1] == "group" else replace(state, links=kept)
    return state


def body_of(state: FormState) -> tuple[dict[str, Any], tuple[Fault, ...]]:
    """The body of POST /v1/plans, and what could not even be read as JSON.

    What is blank is left out; what is no number stays text, for the parser to refuse.
    """
    body: dict[str, Any] = {"model": {}, "cluster": {"node_groups": []}, "workload": {"kind": "training"}}
    faults: list[Fault] = []
    for f in (*BY_MODEL_KIND[state.model_kind], *CLUSTER, *WORKLOAD, *CONSTRAINTS):
        text = state.values.get(f.name, "")
        if text and f.kind == "json":
            value, fault = _json(text, _pointer(f.path))
            faults += [fault] if fault else []
            _put(body, f.path, value)
        elif text:
            _put(body, f.path, _value(text, f))
    body["cluster"]["node_groups"] = [_object(row, GROUP) for row in state.groups]
    if state.links:
        body["cluster"]["links"] = [_object(row, LINK) for row in state.links]
    if state.extra:
        extra, fault = _json(state.extra, "")
        faults += [fault] if fault else []
        body = merged(body, extra)
    return body, tuple(faults)


def state_of_body(body: Mapping[str, Any]) -> FormState:
    """The form that stands for a body; what has no field goes to `extra` as JSON."""
    model = body.get("model") or {}
    kind = "config" if "hf_config" in model else "dimensions" if "architecture" in model else "preset"
    fields = (*BY_MODEL_KIND[kind], *CLUSTER, *WORKLOAD, *CONSTRAINTS)
    cluster = body.get("cluster") or {}
    state = FormState(
        model_kind=kind,
        values={f.name: text for f in fields if (text := _text(_get(body, f.path), f))},
        groups=tuple(_row(g, GROUP) for g in cluster.get("node_groups") or [{}]),
        links=tuple(_row(g, LINK) for g in cluster.get("links") or ()),
    )
    rest = difference(dict(body), body_of(state)[0])
    return replace(state, extra=json.dumps(rest, indent=2) if rest else "")


def field_at(pointer: str, state: FormState) -> str | None:
    """The name of the input that a fault's JSON pointer leads to: the exact one, else the nearest that holds it or lies under it."""
    where = tuple(pointer.split("/")[1:])
    best, length = None, 0
    for name, path in _inputs(state):
        shared = 0
        while shared < min(len(where), len(path)) and where[shared] == path[shared]:
            shared += 1
        if shared in (len(where), len(path)) and shared > length:
            best, length = name, shared
    return best


def _inputs(state: FormState) -> Iterator[tuple[str, tuple[str, ...]]]:
    for f in (*BY_MODEL_KIND[state.model_kind], *CLUSTER, *WORKLOAD, *CONSTRAINTS):
        yield f.name, tuple(map(str, f.path))
    for prefix, key, rows, fields in (("group", "node_groups", state.groups, GROUP), ("link", "links", state.links, LINK)):
        for i in range(len(rows)):
            for f in fields:
                yield f"{prefix}.{i}.{f.name}", ("cluster", key, str(i), *map(str, f.path))


def _object(row: Row, fields: tuple[Field, ...]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for f in fields:
        if row.get(f.name):
            _put(made, f.path, _value(row[f.name], f))
    return made


def _row(value: Any, fields: tuple[Field, ...]) -> Row:
    return {f.name: _text(_get(value, f.path), f) for f in fields}


def _json(text: str, pointer: str) -> tuple[Any, Fault | None]:
    try:
        value = json.loads(text, parse_constant=lambda name: f"{name} is no number in JSON")
    except (ValueError, RecursionError) as e:
        pointer_file = text.startswith("version https://git-lfs")
        what = "this is a Git LFS pointer, not the file itself" if pointer_file else f"not JSON: {e}"
        return {}, Fault(pointer=pointer, message=what, legal="a JSON object, from { to }")
    if not isinstance(value, dict):
        return {}, Fault(pointer=pointer, message=f"a JSON {type(value).__name__} instead of an object", legal="a JSON object, from { to }")
    return value, None


def _value(text: str, f: Field) -> Any:
    if f.kind == "int":
        return _whole(text)
    if f.kind == "float":
        return _decimal(text)
    if f.kind == "ints":
        return [_whole(part) for part in re.split(r"[\s,;]+", text) if part]
    if f.kind == "flag":
        return True
    return {"true": True, "false": False}[text] if f.choices == ("true", "false") and text in f.choices else text


def _whole(text: str) -> int | str:
    plain = re.sub(r"(?<=\d)[ _,'](?=\d{3}\b)", "", text)
    return int(plain) if re.fullmatch(r"[-+]?\d{1,18}", plain) else text


def _decimal(text: str) -> int | float | str:
    if re.fullmatch(r"[-+]?\d{1,15}", text):
        return int(text)
    return float(text) if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,2})?", text) else text


def _text(value: Any, f: Field) -> str:
    if value is None or (isinstance(value, dict | list) and f.kind not in ("json", "ints")):
        return ""
    if f.kind == "json":
        return json.dumps(value, indent=2)
    if f.kind == "ints":
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else ""
    if f.kind == "flag":
        return "on" if value is True else ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _get(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list | tuple) and len(value) > key else None
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _put(target: dict[str, Any], path: tuple[str | int, ...], value: Any) -> None:
    *parents, last = path
    if isinstance(last, int):  # the only lists in fields are short and filled in order
        holder: Any = target
        for key in parents[:-1]:
            holder = holder.setdefault(key, {})
        holder.setdefault(parents[-1], []).append(value)
        return
    holder = target
    for key in parents:
        holder = holder.setdefault(key, {})
    holder[last] = value


def _pointer(path: tuple[str | int, ...]) -> str:
    return "".join(f"/{key}" for key in path)
