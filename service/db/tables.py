"""The tables. Times are integers, milliseconds since 1970 UTC; JSON documents are stored as the bytes that are sent."""
from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, UniqueConstraint

METADATA = MetaData(naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "uq": "uq_%(table_name)s_%(column_0_N_name)s",
                                       "fk": "fk_%(table_name)s_%(column_0_N_name)s", "pk": "pk_%(table_name)s"})

PLANS = Table(
    "plans", METADATA,
    Column("id", String(32), primary_key=True),                     # sorts by time of creation
    Column("owner", String(64), nullable=False),                    # key that made it; empty without keys
    Column("cache_key", String(64), nullable=False),                # digest of the resolved problem, options and versions
    Column("request_key", String(64), nullable=False),              # digest of the request as posted and versions: a short cut to the same
    Column("flight", String(64), unique=True),                      # digest that equal requests in flight share; null once finished
    Column("status", String(16), nullable=False),                   # queued | running | succeeded | failed | cancelled
    Column("outcome", String(16)),                                  # optimal | feasible | infeasible
    Column("time_limit_s", Float, nullable=False),
    Column("requesters", Integer, nullable=False),                  # 0: nobody waits any more, so the search stops
    Column("attempts", Integer, nullable=False),
    Column("executor", String(64)),
    Column("model_name", String(253), nullable=False),
    Column("cluster_name", String(253), nullable=False),
    Column("step_time_s", Float),
    Column("versions", LargeBinary, nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("progress", LargeBinary),
    Column("resource", LargeBinary),                                # the finished plan resource, sent as it is
    Column("problem", LargeBinary),                                 # why a job failed: a problem document
    Column("created_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("heartbeat_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Index(None, "owner", "cache_key"),
    Index(None, "owner", "request_key"),
    Index(None, "status"),
)

PLAN_EVENTS = Table(
    "plan_events", METADATA,
    Column("plan_id", String(32), ForeignKey("plans.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),  # from 1; the id of the server-sent event
    Column("body", LargeBinary, nullable=False),
)

PROFILE_SETS = Table(
    "profile_sets", METADATA,
    Column("owner", String(64), primary_key=True),                  # key that made it; empty without keys
    Column("name", String(253), primary_key=True),
    Column("digest", String(64), nullable=False),                   # of the figures: what plans name
    Column("summary", LargeBinary, nullable=False),                 # counts of rows, devices, source
    Column("body", LargeBinary, nullable=False),                    # the set, without its name; never changed
    Column("created_ms", BigInteger, nullable=False),
)

IDEMPOTENCY = Table(
    "idempotency_keys", METADATA,
    Column("owner", String(64), primary_key=True),
    Column("route", String(64), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("request_hash", String(64), nullable=False),
    Column("status", Integer),                                      # null while the first request is still being answered
    Column("headers", LargeBinary),
    Column("body", LargeBinary),
    Column("created_ms", BigInteger, nullable=False),
    Index(None, "created_ms"),
)

CALIBRATION_SETS = Table(
    "calibration_sets", METADATA,
    Column("id", String(32), primary_key=True),
    Column("owner", String(64), nullable=False),                    # key that made it; empty without keys
    Column("name", String(253), nullable=False),
    Column("revision", Integer, nullable=False),                    # counts changes: a fit is stored only if nothing changed while it was made
    Column("version", String(64)),                                  # of the newest fit; null without observations
    Column("account", LargeBinary),                                 # how the newest fit came about: what was learned, predicted against measured
    Column("created_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    UniqueConstraint("owner", "name"),
)

OBSERVATIONS = Table(
    "observations", METADATA,
    Column("id", String(32), primary_key=True),                     # sorts by time of arrival
    Column("set_id", String(32), ForeignKey("calibration_sets.id", ondelete="CASCADE"), nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index(None, "set_id"),
)

CALIBRATION_FITS = Table(
    "calibration_fits", METADATA,
    Column("set_id", String(32), ForeignKey("calibration_sets.id", ondelete="CASCADE"), primary_key=True),
    Column("version", String(64), primary_key=True),                # kept, so that every answer can be priced again
    Column("cost_model", String(64), nullable=False),               # that it was fitted with: another one needs another fit
    Column("calibration", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
