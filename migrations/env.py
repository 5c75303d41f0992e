"""Alembic's entry: runs on the connection that the service hands over, or opens the one named in alembic.ini."""
from alembic import context

from service.db.engine import open_engine
from service.db.tables import METADATA

connection = context.config.attributes.get("connection")


def run(on) -> None:  # type: ignore[no-untyped-def]
    context.configure(connection=on, target_metadata=METADATA, render_as_batch=True, transaction_per_migration=False)
    with context.begin_transaction():
        context.run_migrations()


if connection is not None:
    run(connection)
else:
    with open_engine(context.config.get_main_option("sqlalchemy.url")).connect() as opened:
        run(opened)
        opened.commit()
