"""Settings: the environment, the defaults, and docs/settings.md in step with both."""
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import PREFIX, Settings, key_hash

DOC = Path(__file__).parents[2] / "docs" / "settings.md"


def rows() -> dict[str, list[str]]:
    """Rows of the table in docs/settings.md by name: default, legal values, meaning."""
    found = {}
    for line in DOC.read_text().splitlines():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip("|"))]
        if line.startswith("| `" + PREFIX):
            found[cells[0].strip("`")] = cells[1:]
    return found


def shown(name: str) -> str:
    """How the page states a default."""
    default = Settings.model_fields[name].default
    if name == "workers":
        return "half of the processors"
    if default is None or default == ():
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_the_page_lists_every_setting_with_its_default_and_meaning() -> None:
    documented = rows()
    assert list(documented) == [PREFIX + name.upper() for name in Settings.model_fields]
    for name, field in Settings.model_fields.items():
        assert documented[PREFIX + name.upper()] == [shown(name), field.description], name


def test_every_setting_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"HOST": "127.0.0.2", "PORT": "9", "DATA_DIR": "/tmp/x", "WORKERS": "3", "API_KEYS": "a, b", "ALLOWED_HOSTS": "one,two",
              "ALLOW_REMOTE": "true", "DATABASE_URL": "postgresql://u:p@h/d", "ROLE": "api"}
    for name, value in values.items():
        monkeypatch.setenv(PREFIX + name, value)
    s = Settings()
    assert (s.host, s.port, s.data_dir, s.workers, s.allow_remote, s.role) == ("127.0.0.2", 9, Path("/tmp/x"), 3, True, "api")
    assert s.key_hashes == (key_hash("a"), key_hash("b"))
    assert {"one", "two", "localhost", "127.0.0.2"} <= s.hosts
    assert s.database == "postgresql+psycopg://u:p@h/d" and s.jobs_database == "postgresql://u:p@h/d"


def test_defaults_are_embedded_and_local() -> None:
    s = Settings(data_dir=Path("/data"))
    assert s.database == "sqlite:////data/shardwright.db" and s.jobs_database == "sqlite:////data/shardwright-jobs.db"
    assert (s.host, s.port, s.executor, s.solves, s.answers) == ("127.0.0.1", 8000, "local", True, True)


@pytest.mark.parametrize(("values", "words"), [({"role": "worker"}, "postgresql://"), ({"database_url": "mysql://x/y"}, "sqlite:///path"),
                                               ({"port": 70000}, "65535"), ({"workers": 0}, "greater than or equal to 1")])
def test_bad_settings_say_what_is_legal(values: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        Settings(**values)
