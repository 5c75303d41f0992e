"""The only composition root: settings in, application out."""
import asyncio
import contextlib
import fcntl
import logging
import sys
from collections.abc import AsyncIterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TextIO

import structlog
import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response

from service.api import (body, calibrations, catalog, docs, errors, estimates, events, exports, health, metrics, placements, plans, profiles, replans,
                         strategies, timeline)
from service.api.access import AccessGuard
from service.api.schema import openapi
from service.jobs.core import open_core
from service.jobs.failures import problem
from service.jobs.port import Planner
from service.settings import Settings
from service.web import mount
from service.web.adapter import ServiceBackend
from solver.domain.request import PlanRequest
from solver.errors import Fault

RESOURCES = (estimates, plans, replans, placements, events, exports, timeline, profiles, calibrations, catalog, strategies, docs)
OPERATIONS = (health, metrics)


def create_app(settings: Settings | None = None, *, planner: Planner | None = None) -> FastAPI:
    """The application. The database is opened, and workers started, when it starts to serve."""
    settings = settings or Settings()
    _log_as_json(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.streams = events.Streams(settings.max_event_streams)
        app.state.core = await asyncio.to_thread(open_core, settings, planner)
        try:
            yield
        finally:
            app.state.streams.stopping.set()
            await asyncio.to_thread(app.state.core.close)

    app = FastAPI(title="Shardwright", version=product_version(), lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.openapi = lambda: openapi(app)                      # type: ignore[method-assign]
    app.state.settings, app.state.metrics = settings, metrics.Metrics()
    errors.install(app)
    app.add_exception_handler(RequestValidationError, _on_bad_parameters)
    for resource in (*OPERATIONS, *(RESOURCES if settings.answers else ())):
        app.include_router(resource.router)
    if settings.answers:
        _mount_pages(app)
    app.add_middleware(AccessGuard, settings=settings)
    app.add_middleware(metrics.MetricsRecorder, metrics=app.state.metrics)
    return app


def run(settings: Settings) -> None:
    """Serve until told to stop."""
    held = claimed(settings)
    if held is None:
        raise SystemExit(f"Another service is running on {settings.data_dir}: an embedded database belongs to one. "
                         "Set SHARDWRIGHT_DATA_DIR to another folder, or SHARDWRIGHT_DATABASE_URL to PostgreSQL to share one.")
    uvicorn.run(create_app(settings), host=settings.host, port=settings.port, log_config=None, access_log=False, server_header=False,
                timeout_graceful_shutdown=settings.shutdown_grace_s, h11_max_incomplete_event_size=64 * 1024)


def claimed(settings: Settings) -> TextIO | None:
    """A lock on the folder of an embedded database, held as long as the file is open; None where another process has it."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    lock = (settings.data_dir / "service.lock").open("w")
    if not settings.is_sqlite:
        return lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    return lock


def product_version() -> str:
    try:
        return version("shardwright")
    except PackageNotFoundError:                            # run from a checkout that is not installed
        return "0.1.0"


def _mount_pages(app: FastAPI) -> None:
    """The pages parse what they send as the API does; they do not import it, so its reader is handed to them."""
    mount(app, ServiceBackend(read=lambda raw: body.checked(raw, PlanRequest)))


async def _on_bad_parameters(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, RequestValidationError)
    faults = [Fault(pointer="/" + "/".join(str(p) for p in e["loc"]), message=f"{str(e.get('input'))[:80]!r}: {e['msg']}",
                    legal=_legal(e.get("ctx", {})))
              for e in error.errors()]
    return errors.response(problem("bad-parameter", "A parameter has faults", 422, "; ".join(f"{f.pointer}: {f.message}" for f in faults), faults))


def _legal(context: dict[str, object]) -> str | None:
    return ", ".join(f"{name} {value}" for name, value in context.items() if name != "error") or None


def _log_as_json(settings: Settings) -> None:
    """One JSON object a line on standard error, the libraries' own logs included. Bodies, keys and URLs of databases are never logged."""
    shared: list[Any] = [structlog.contextvars.merge_contextvars, structlog.stdlib.add_logger_name, structlog.stdlib.add_log_level,
              structlog.processors.TimeStamper(fmt="iso", utc=True)]
    structlog.configure(processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter], wrapper_class=structlog.stdlib.BoundLogger,
                        logger_factory=structlog.stdlib.LoggerFactory(), cache_logger_on_first_use=False)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.format_exc_info,
                                              structlog.processors.JSONRenderer()]))
    root = logging.getLogger()
    root.handlers = [h for h in root.handlers if not isinstance(h.formatter, structlog.stdlib.ProcessorFormatter)] + [handler]
    root.setLevel(settings.log_level)
    for name in ("alembic", "dbos", "httpx", "multipart"):
        logging.getLogger(name).setLevel(logging.WARNING)
