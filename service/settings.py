"""The only reader of the environment. Every setting is an environment variable with the prefix SHARDWRIGHT_; docs/settings.md lists them all."""
import hashlib
import ipaddress
import os
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PREFIX = "SHARDWRIGHT_"
HASH_PREFIX = "sha256:"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def _comma_separated(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_separated)]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_comma_separated)]


class Settings(BaseSettings):
    """How one service runs. Nothing else in the program looks at the environment."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = Field("127.0.0.1", description="Address to listen on. Other than loopback needs API_KEYS or ALLOW_REMOTE.")
    port: int = Field(8000, ge=0, le=65535, description="TCP port to listen on; 0 takes a free one.")
    data_dir: Path = Field(Path("var"), description="Directory of the embedded database. Give each service its own to run several side by side.")
    database_url: SecretStr | None = Field(
        None, description="SQLAlchemy URL of the database: sqlite:///path or postgresql://user:password@host/name. Default: SQLite in DATA_DIR.")
    role: Literal["all", "api", "worker"] = Field(
        "all", description="`all`: answer requests and solve. `api`: answer only. `worker`: solve only. Apart they need PostgreSQL.")
    workers: int = Field(max(1, (os.cpu_count() or 1) // 2), ge=1, le=256, description="Solver processes, each solving one plan at a time.")
    executor_id: str | None = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        description="Stable name of this worker: restarted, it resumes its plans. Default: `local` on SQLite, else the host name.")
    api_keys: Secrets = Field(
        (), description="Comma-separated keys, or `sha256:` and a key's hex digest. When set, every request needs `Authorization: Bearer KEY`.")
    allow_remote: bool = Field(False, description="True: listen on other than loopback without API keys. Whoever reaches the port may use it.")
    allowed_hosts: Names = Field(
        (), description="Comma-separated Host header values to accept besides HOST and the loopback names; `*` accepts any.")
    allowed_origins: Names = Field((), description="Comma-separated origins (scheme://host:port) of other sites whose pages may send requests.")
    max_body_bytes: int = Field(8 * 2**20, ge=1024, le=2**30, description="Largest request body accepted, in bytes.")
    body_timeout_s: float = Field(30.0, gt=0, le=3600, description="Longest time that the body of a request may take to arrive.")
    default_wait_s: float = Field(10.0, ge=0, le=600, description="How long POST /v1/plans waits for the answer when the client does not say.")
    max_wait_s: float = Field(60.0, ge=0, le=600, description="Longest wait that a client may ask for.")
    max_time_limit_s: float = Field(600.0, ge=0.1, le=3600, description="Largest search.time_limit_s accepted.")
    max_queued_plans: int = Field(1000, ge=1, le=1_000_000, description="Plans queued or running beyond which new ones are refused with 503.")
    max_profile_sets: int = Field(100, ge=1, le=100_000, description="Sets of measurements that one key may keep.")
    max_calibration_sets: int = Field(100, ge=1, le=100_000, description="Calibration sets that one key may keep.")
    max_observations: int = Field(100, ge=1, le=1000, description="Measured runs that one calibration set may hold.")
    max_calibration_fits: int = Field(10_000, ge=1, le=1_000_000, description="Fits kept of one calibration set, so that answers can be repeated.")
    max_event_streams: int = Field(64, ge=1, le=10_000, description="Event streams open at once.")
    job_attempts: int = Field(3, ge=1, le=100, description="How often a plan is started, when its solver process dies, before its job fails.")
    solver_grace_s: float = Field(60.0, ge=1, le=3600, description="Time beyond its limit after which a solver process is stopped by force.")
    cancel_grace_s: float = Field(10.0, ge=0.1, le=600, description="Time that a cancelled search has to hand over its best plan.")
    worker_lost_s: float = Field(60.0, ge=2, le=86_400, description="Silence after which a worker counts as lost and another one takes up its plans.")
    queue_poll_s: float = Field(0.1, ge=0.01, le=60, description="How often a worker looks for queued plans.")
    shutdown_grace_s: int = Field(5, ge=0, le=600, description="How long open requests may finish after a stop signal.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Least severe level that is logged.")

    @model_validator(mode="after")
    def _refuse_open_doors(self) -> "Settings":
        if self.role != "worker" and not is_loopback(self.host) and not self.api_keys and not self.allow_remote:
            raise ValueError(f"{PREFIX}HOST={self.host} is reachable from other machines and no API key is set. "
                             f"Legal: {PREFIX}HOST=127.0.0.1, or {PREFIX}API_KEYS=..., or {PREFIX}ALLOW_REMOTE=true")
        if self.role != "all" and self.is_sqlite:
            raise ValueError(f"{PREFIX}ROLE={self.role} needs a database that several processes share. Legal: {PREFIX}DATABASE_URL=postgresql://...")
        if not self.is_sqlite and not self.database.startswith("postgresql+psycopg://"):
            raise ValueError(f"{PREFIX}DATABASE_URL names a database that is not supported. Legal: sqlite:///path, postgresql://user:password@host/name")
        return self

    @property
    def database(self) -> str:
        """SQLAlchemy URL with its driver named."""
        if self.database_url is None:
            return f"sqlite:///{self.data_dir.absolute() / 'shardwright.db'}"
        url = self.database_url.get_secret_value()
        for prefix in ("postgres://", "postgresql://"):
            if url.startswith(prefix):
                return "postgresql+psycopg://" + url[len(prefix):]
        return url

    @property
    def jobs_database(self) -> str:
        """URL of the queue's own tables: a second file beside SQLite's (the two would lock each other out), a schema of its own in PostgreSQL."""
        if self.is_sqlite:
            path = Path(self.database.removeprefix("sqlite:///"))
            return f"sqlite:///{path.with_name(path.stem + '-jobs.db')}"
        return self.database.replace("postgresql+psycopg://", "postgresql://", 1)

    @property
    def is_sqlite(self) -> bool:
        return self.database.startswith("sqlite:///")

    @property
    def executor(self) -> str:
        return self.executor_id or ("local" if self.is_sqlite else socket.gethostname())

    @property
    def key_hashes(self) -> tuple[str, ...]:
        """sha256 hex digests of the configured keys."""
        plain = (k.get_secret_value() for k in self.api_keys)
        return tuple(k.removeprefix(HASH_PREFIX).lower() if k.startswith(HASH_PREFIX) else key_hash(k) for k in plain)

    @property
    def hosts(self) -> frozenset[str]:
        """Host header values (without port, lower case) that are accepted."""
        own = f"[{self.host}]" if ":" in self.host else self.host
        return frozenset(h.lower() for h in (*LOOPBACK_NAMES, own, *self.allowed_hosts))

    @property
    def solves(self) -> bool:
        return self.role in ("all", "worker")

    @property
    def answers(self) -> bool:
        return self.role in ("all", "api")


def key_hash(key: str) -> str:
    """sha256 hex digest of an API key. Keys are long random strings, so a fast hash is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reachable from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
