"""The catalogue: GPUs, links and models, each number with its source."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.web.backend import backend_of
from service.web.render import page

router = APIRouter(include_in_schema=False)


@router.get("/catalog")
def catalog(request: Request) -> Response:
    """Everything that can be named, filtered by `?q=`."""
    known = backend_of(request).catalogue()
    query = request.query_params.get("q", "").strip()[:100]
    words = query.lower().split()
    return page(
        request,
        "catalog.html",
        query=query,
        version=known.version,
        devices=[d for d in known.devices if _matches(d, words)],
        links=[d for d in known.links if _matches(d, words)],
        presets=[d for d in known.presets if _matches(d, words)],
    )


def _matches(entry: Any, words: list[str]) -> bool:
    text = " ".join(str(v) for v in entry.values()).lower()
    return all(word in text for word in words)
