"""A fake service on a free port, and a browser whose pages may neither complain nor call other hosts."""

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from tests.service.web.fake import FakeBackend, fake_app

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"


@dataclass(slots=True)
class Served:
    """A running fake service."""

    url: str
    backend: FakeBackend


@dataclass(slots=True)
class Watch:
    """What a page has complained about, and where it has called."""

    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


@pytest.fixture
def served() -> Iterator[Served]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    backend = FakeBackend()
    server = uvicorn.Server(uvicorn.Config(fake_app(backend), host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started and time.monotonic() < until:
        time.sleep(0.02)
    assert server.started
    yield Served(url=f"http://127.0.0.1:{port}", backend=backend)
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    assert found, "the browser tests need Chromium: apt-get install chromium"
    with sync_playwright() as p:
        launched = p.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser, served: Served) -> Iterator[Callable[..., Page]]:
    """Opens pages of the fake service; at the end of the test, none of them may have had an error or called another host."""
    watch = Watch()
    contexts = []

    def opened(path: str, *, tolerate: str = "", **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on(
            "console",
            lambda m: watch.complaints.append(m.text) if m.type in ("error", "warning") and (not tolerate or tolerate not in m.text) else None,
        )
        page.on("pageerror", lambda e: watch.complaints.append(str(e)))
        page.on("request", lambda r: None if r.url.startswith((served.url, "data:")) else watch.foreign.append(r.url))
        page.goto(served.url + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert watch.complaints == []
    assert watch.foreign == []
