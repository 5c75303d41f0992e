"""docs/service.md lists the routes that there are, and names only settings that there are."""
import json
import re
from pathlib import Path

from service.main import create_app
from service.settings import Settings

DOC = (Path(__file__).parents[2] / "docs" / "service.md").read_text()


def test_routes() -> None:
    api = create_app(Settings()).openapi()
    served = {f"{method.upper()} {path}" for path, methods in api["paths"].items() for method in methods if not _page(methods[method])}
    assert set(re.findall(r"^\| `((?:GET|POST|DELETE) /\S*)` \|", DOC, re.MULTILINE)) == served


def test_every_reference_of_the_description_leads_somewhere() -> None:
    api = create_app(Settings()).openapi()
    named = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(api)))
    assert named and named <= set(api["components"]["schemas"])


def _page(operation: dict) -> bool:
    """Web pages answer HTML and are no part of the contract."""
    return "text/html" in operation["responses"].get("200", {}).get("content", {})


def test_settings_that_are_named_exist() -> None:
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)(?:=\w+)?`", DOC))
    assert named and named <= {n.upper() for n in Settings.model_fields}
