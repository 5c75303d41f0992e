"""One engine per service; migrations at start."""
import sqlite3
import time
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

Engine: TypeAlias = sa.Engine
MIGRATIONS = Path(__file__).parents[2] / "migrations"
BUSY_TIMEOUT_MS = 15_000
MIGRATION_LOCK = 7_305_913_442                              # any number that no other user of the database takes

UNAVAILABLE = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError)     # the database, not the statement, is at fault


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def open_engine(url: str) -> sa.Engine:
    """An engine for SQLite (write-ahead log, foreign keys, patient writers) or PostgreSQL."""
    if not url.startswith("sqlite:///"):
        return sa.create_engine(url, pool_size=20, max_overflow=20, pool_pre_ping=True)
    Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(url, pool_size=20, max_overflow=20)

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: Any) -> None:
        del record
        connection.isolation_level = "IMMEDIATE"            # a writer takes its lock first, so it waits instead of failing half-way
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")

    return engine


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file, once in its life. SQLite does not wait its busy timeout out for this, so two that switch a new file at once must try again."""
    give_up = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > give_up:
                raise
        time.sleep(0.01)


def migrate(engine: sa.Engine) -> None:
    """Bring the schema to the newest version. Several processes may do so at once: one does the work, the others wait."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        else:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def is_reachable(engine: sa.Engine) -> bool:
    try:
        with engine.connect() as connection:
            connection.execute(sa.text("SELECT 1"))
    except sa.exc.SQLAlchemyError:
        return False
    return True
