"""Migrations lead from nothing to the tables as the code has them, on both databases, and may run any number of times at once."""
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from service.db.engine import MIGRATIONS, is_reachable, migrate, open_engine
from service.db.plans import NewPlan, PlanTable
from service.db.tables import METADATA
from service.settings import Settings


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    if request.param == "sqlite":
        return Settings(data_dir=tmp_path)
    new_database: Callable[[str], str] = request.getfixturevalue("new_database")
    return Settings(data_dir=tmp_path, database_url=new_database("migrations"))


def test_migrated_tables_are_those_of_the_code(settings: Settings) -> None:
    engine = open_engine(settings.database)
    migrate(engine)
    migrate(engine)
    with engine.connect() as c:
        assert compare_metadata(MigrationContext.configure(c), METADATA) == []
    engine.dispose()


def test_a_migration_taken_back_leaves_plans_and_their_events(settings: Settings) -> None:
    engine = open_engine(settings.database)
    migrate(engine)
    plans = PlanTable(engine)
    plan_id = plans.insert(NewPlan(owner="", cache_key="k", request_key="r", flight=None, time_limit_s=1.0, model_name="m", cluster_name="c",
                                   versions=b"{}", request=b"{}"))
    assert plan_id is not None
    plans.beat(plan_id, b"{}")
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as c:
        config.attributes["connection"] = c
        command.downgrade(config, "0001")
        assert "calibration_sets" not in sa.inspect(c).get_table_names()
    migrate(engine)
    assert [body for _, body in plans.events(plan_id, 0)] == [b"{}"]
    engine.dispose()


def test_several_processes_may_migrate_at_once(settings: Settings) -> None:
    engines = [open_engine(settings.database) for _ in range(4)]
    errors: list[BaseException] = []

    def run(engine: sa.Engine) -> None:
        try:
            migrate(engine)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(e,)) for e in engines]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    assert all(is_reachable(e) for e in engines)
    for e in engines:
        e.dispose()


def test_an_unreachable_database_is_told(tmp_path: Path) -> None:
    engine = open_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    assert not is_reachable(engine)
