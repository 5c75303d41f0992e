"""The form: a new plan request, by hand or from an example."""

import json
import shlex
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.web import fields
from service.web.backend import Catalogue, Refused, backend_of
from service.web.examples import example, examples
from service.web.forms import FormState, body_of, edited, empty_state, field_at, state_of_body, state_of_form
from service.web.render import page
from solver.errors import Fault

MAX_FORM_BYTES = 4_000_000
router = APIRouter(include_in_schema=False)


@router.get("/")
def new_plan(request: Request) -> Response:
    """An empty form, or the example that `?example=` names."""
    name = request.query_params.get("example")
    chosen = example(name) if name else None
    state = state_of_body(chosen.body) if chosen else empty_state()
    return _form(request, state, loaded=chosen.name if chosen else None, missing=name if name and not chosen else None)


@router.post("/form")
async def edit_form(request: Request) -> Response:
    """The form again, after a row button or (with `action=check`) with everything that is wrong with it."""
    state, action = await _posted(request)
    if action == "check":
        return await run_in_threadpool(_checked, request, state)
    return await run_in_threadpool(_form, request, edited(state, action))


@router.post("/plans")
async def submit(request: Request) -> Response:
    """Hand the form to the planner as the body that it stands for."""
    state, _ = await _posted(request)
    return await run_in_threadpool(_submitted, request, state)


def _submitted(request: Request, state: FormState) -> Response:
    body, faults = body_of(state)
    try:
        if faults:
            raise Refused(*faults)
        plan_id = backend_of(request).submit(request, body)
    except Refused as refused:
        return _form(request, state, faults=refused.faults, status=refused.status)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/plans/{plan_id}", status_code=303)


def _checked(request: Request, state: FormState) -> Response:
    body, faults = body_of(state)
    if not faults:
        try:
            backend_of(request).check(request, body)
        except Refused as refused:
            faults = refused.faults
    return _form(request, state, faults=faults, checked=True)


async def _posted(request: Request) -> tuple[FormState, str]:
    async with request.form(max_files=2, max_fields=2000, max_part_size=MAX_FORM_BYTES) as data:
        values = {k: v for k, v in data.items() if isinstance(v, str)}
        upload = data.get("config_file")
        if isinstance(upload, UploadFile) and upload.size:
            values["hf_config"] = (await upload.read(MAX_FORM_BYTES)).decode("utf-8", "replace")
            values["model_kind"] = "config"
    return state_of_form(values), values.get("action", "")


def _form(
    request: Request,
    state: FormState,
    faults: tuple[Fault, ...] = (),
    status: int = 200,
    loaded: str | None = None,
    missing: str | None = None,
    checked: bool = False,
) -> Response:
    catalogue = backend_of(request).catalogue()
    placed = [(fault, field_at(fault.pointer, state)) for fault in faults]
    body, _ = body_of(state)
    return page(
        request,
        "form.html",
        status=status,
        state=state,
        fields=fields,
        catalogue=catalogue,
        examples=examples(),
        loaded=loaded,
        missing=missing,
        placed=placed,
        faults=_by_field(placed),
        curl=curl(str(request.base_url), body),
        checked=checked,
        gpus=_gpus(state, catalogue),
    )


def _by_field(placed: list[tuple[Fault, str | None]]) -> dict[str, list[Fault]]:
    found: dict[str, list[Fault]] = {}
    for fault, name in placed:
        if name:
            found.setdefault(name, []).append(fault)
    return found


def _gpus(state: FormState, catalogue: Catalogue) -> int:
    usual = {d["name"]: d["gpus_per_node"] for d in catalogue.devices}
    total = 0
    for row in state.groups:
        nodes, each = row.get("nodes", ""), row.get("gpus_per_node", "") or str(usual.get(row.get("gpu", ""), ""))
        if all(n.isdecimal() and n.isascii() for n in (nodes, each)):
            total += int(nodes) * int(each)
    return total


def curl(base_url: str, body: dict[str, Any]) -> str:
    """The command that sends the same request."""
    text = json.dumps(body, indent=2, ensure_ascii=False)
    headers = ("Content-Type: application/json", "Prefer: wait=30")
    parts = [f"curl -s {shlex.quote(base_url.rstrip('/') + '/v1/plans')}", *(f"-H {shlex.quote(h)}" for h in headers), f"-d {shlex.quote(text)}"]
    return " \\\n  ".join(parts)
