"""/docs: the reference as one plain page, written by the service from its own description; nothing is loaded from elsewhere."""
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from service.api.schema import openapi
from service.jobs.render import json_bytes

router = APIRouter(include_in_schema=False)
PAGES = (("/", "New plan"), ("/plans", "Plans"), ("/catalog", "Catalogue"), ("/docs", "API"))
STYLE = """
main { max-width: 64rem; } main p { max-width: 48rem; }
h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; } h3 { margin: 2rem 0 .2rem; overflow-wrap: anywhere; }
td, th { text-align: left; vertical-align: top; padding: .15rem .8rem .15rem 0; } main table { width: auto; }
.rows { overflow-x: auto; }
@media (max-width: 759px) { td:last-child { overflow-wrap: anywhere; } }
"""


@router.get("/docs")
def read_docs(request: Request) -> HTMLResponse:
    return HTMLResponse(page(openapi(request.app), request.scope.get("root_path", "")))


@router.get("/openapi.json")
def read_openapi(request: Request) -> Response:
    return Response(json_bytes(openapi(request.app)), media_type="application/json")


def page(api: dict[str, Any], root: str = "") -> str:
    """The whole reference as HTML, under the site's header; `root` is where the service is mounted."""
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>"
             f"<title>{escape(api['info']['title'])}: HTTP reference</title>{_head(escape(root))}<main id=main tabindex=-1>"
             f"<h1>{escape(api['info']['title'])} {escape(api['info']['version'])}</h1>"
             f"<p>{escape(api['info']['description'])}</p><p>The same for machines: <a href='openapi.json'>openapi.json</a></p><h2>Routes</h2>"]
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(method, path, operation))
    parts.append("<h2>Objects</h2>")
    for name, schema in sorted(api["components"]["schemas"].items()):
        parts.append(_object(name, schema))
    return "".join(parts) + "</main></body></html>"


def _head(root: str) -> str:
    sheets = "".join(f"<link rel=stylesheet href='{root}/static/{name}.css'>" for name in ("tokens", "app"))
    links = "".join(f"<a href='{root}{path}'{' aria-current=page' if path == '/docs' else ''}>{label}</a>" for path, label in PAGES)
    return (f"<link rel=icon href='{root}/static/icon.svg' type='image/svg+xml'>{sheets}<style>{STYLE}</style><body>"
            f"<a class=skip href='#main'>Skip to content</a><header class=top><a class=brand href='{root}/'>Shardwright</a>"
            f"<nav aria-label=Main>{links}</nav></header>")


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [f"<tr><td><code>{escape(p['name'])}</code><td>{escape(p['in'])}<td>{escape(p.get('description', ''))}</tr>"
            for p in operation.get("parameters", [])]
    for media in operation.get("requestBody", {}).get("content", {}).values():
        rows.append(f"<tr><td>body<td>{_type(media['schema'])}<td></tr>")
    for status, answer in operation["responses"].items():
        schema: dict[str, Any] = next((m.get("schema", {}) for m in answer.get("content", {}).values()), {})
        rows.append(f"<tr><td>{escape(status)}<td>{_type(schema)}<td>{escape(answer.get('description', ''))}</tr>")
    return f"<h3><code>{method.upper()} {escape(path)}</code></h3><p>{escape(operation.get('summary', ''))}</p>{_table(rows)}"


def _object(name: str, schema: dict[str, Any]) -> str:
    needed = schema.get("required", [])
    rows = [f"<tr><td><code>{escape(key)}</code>{' *' if key in needed else ''}<td>{_type(part)}<td>{escape(_limits(part))}</tr>"
            for key, part in schema.get("properties", {}).items()]
    words = escape(schema.get("description", "").strip())
    return f"<h3 id='{escape(name)}'>{escape(name)}</h3><p>{words}</p>{_table(rows)}"


def _table(rows: list[str]) -> str:
    return f"<div class=rows tabindex=0><table>{''.join(rows)}</table></div>"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(part) for part in schema[several])
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(v))}</code>" for v in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if schema.get("type") == "array":
        return "array of " + _type(schema.get("items", {}))
    return escape(str(schema.get("type", "any")))


def _limits(schema: dict[str, Any]) -> str:
    words = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"), ("pattern", "matches"),
                                                       ("default", "default")) if schema.get(key) is not None]
    return ", ".join(words)
