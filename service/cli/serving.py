"""`shardwright serve`: says where and how, then hands over to the service."""
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from service.cli.faults import BAD_INPUT, errors
from service.cli.words import printable
from service.settings import PREFIX, Settings


def run(given: dict[str, Any]) -> int:
    """Serve until told to stop; the exit code."""
    out = errors()
    try:
        settings = Settings(**given)
    except ValidationError as e:
        _refuse(out, e)
        return BAD_INPUT
    from service.main import run as run_service

    where = f"the embedded database in {settings.data_dir.absolute()}" if settings.is_sqlite else f"the PostgreSQL database of {PREFIX}DATABASE_URL"
    out.print(f"Shardwright uses {where}, bringing its tables up to date.")
    if settings.solves:
        out.print(f"Solver processes: {settings.workers}.")
    if settings.answers:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        out.print(f"Pages on http://{host}:{settings.port}/, HTTP interface described on http://{host}:{settings.port}/docs. Stop with Ctrl+C.")
    run_service(settings)
    return 0


def _refuse(out: Console, error: ValidationError) -> None:
    for e in error.errors(include_url=False, include_input=False):
        name = f"{PREFIX}{str(e['loc'][0]).upper()}: " if e["loc"] else ""
        out.print(printable(name + e["msg"].removeprefix("Value error, ")), style="red")
