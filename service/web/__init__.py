"""The web pages: server-rendered, and usable without scripts."""

from typing import TYPE_CHECKING

from fastapi import FastAPI

if TYPE_CHECKING:
    from service.web.backend import Backend


def mount(app: FastAPI, backend: "Backend") -> None:
    """Add the pages and their static files to the application. They work on `backend`: the service, or a stand-in."""
    from starlette.staticfiles import StaticFiles

    from service.web.render import STATIC
    from service.web.views import catalog, form, plans

    app.state.web_backend = backend
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    for view in (form, plans, catalog):
        app.include_router(view.router)
