"""What is known of GPUs, links and models, each number with its source."""
import dataclasses
from functools import cache
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from service.api.schema import described
from service.jobs.render import json_bytes
from solver.catalog import loader

router = APIRouter(prefix="/v1/catalog", tags=["catalogue"])
KEPT = {"Cache-Control": "private, max-age=300"}


@router.get("/gpus", summary="GPUs, with the names that people give them", response_class=Response, openapi_extra=described(None, {200: "Catalogue"}))
def list_gpus() -> Response:
    return Response(_gpus(), media_type="application/json", headers=KEPT)


@router.get("/links", summary="Links between GPUs and between nodes", response_class=Response, openapi_extra=described(None, {200: "Catalogue"}))
def list_links() -> Response:
    return Response(_links(), media_type="application/json", headers=KEPT)


@router.get("/models", summary="Model presets", response_class=Response, openapi_extra=described(None, {200: "Catalogue"}))
def list_models() -> Response:
    return Response(_models(), media_type="application/json", headers=KEPT)


@cache
def _gpus() -> bytes:
    rows = [dataclasses.asdict(e.device) | {f.name: getattr(e, f.name) for f in dataclasses.fields(e) if f.name != "device"}
            for e in loader.device_entries()]
    return _body(rows, families=loader.device_families())


@cache
def _links() -> bytes:
    return _body(loader.links())


@cache
def _models() -> bytes:
    return _body(loader.presets())


def _body(items: Any, **more: Any) -> bytes:
    return json_bytes({"version": loader.CATALOGUE_VERSION, "items": items, **more})
