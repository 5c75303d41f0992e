"""Templates to responses, with the headers that keep a page to its own origin."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from service.web.figures import FILTERS

HERE = Path(__file__).parent
STATIC = HERE / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

_environment = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=select_autoescape(), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_environment.filters.update(FILTERS)


def text(template: str, **context: Any) -> str:
    """A template as text."""
    return _environment.get_template(template).render(**context)


def page(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """A template as a response. `root` is the path under which the service is mounted, `partial` whether htmx asked for a fragment."""
    context = {
        "root": request.scope.get("root_path", ""),
        "path": request.url.path,
        "partial": request.headers.get("HX-Request") == "true",
        **context,
    }
    return HTMLResponse(text(template, **context), status_code=status, headers=HEADERS)
