"""What a stranger starts from: locks, make targets, the containers, the console script."""
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements-install.lock", "requirements.lock", "requirements-test.lock")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _pins(lock: str) -> set[tuple[str, str]]:
    """Names and versions; a name may stand twice, for different versions of Python."""
    return set(re.findall(r"^([a-z0-9._-]+)(?:\[[a-z,]+\])?==([^ ;\\]+)", (ROOT / lock).read_text(), re.MULTILINE))


def _names(lock: str) -> set[str]:
    return {name for name, _ in _pins(lock)}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_no_address_is_named(lock: str) -> None:
    text = (ROOT / lock).read_text()
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(_pins(lock))
    assert all("--hash=sha256:" in block for block in blocks)
    assert not re.search(r"://|index-url|find-links", text)


def test_locks_cover_what_the_project_asks_for() -> None:
    wanted = {re.split(r"[\[><=~! ]", d)[0] for d in PROJECT["project"]["dependencies"]}
    assert wanted <= _names("requirements.lock")
    for_tests = {re.split(r"[\[><=~! ]", d)[0] for d in PROJECT["project"]["optional-dependencies"]["test"]}
    assert for_tests <= _names("requirements-test.lock")


def test_tests_run_against_the_versions_that_are_served() -> None:
    assert _pins("requirements.lock") <= _pins("requirements-test.lock")


def test_console_script_points_at_the_command_line() -> None:
    from service import cli

    assert PROJECT["project"]["scripts"] == {"shardwright": "service.cli:main"}
    assert callable(cli.main)


def test_compose_runs_api_worker_and_database_with_health_checks() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    assert set(services) == {"api", "worker", "postgres"}
    assert all(s["healthcheck"]["test"] for s in services.values())
    for name in ("api", "worker"):
        assert services[name]["environment"]["SHARDWRIGHT_ROLE"] == name
        assert services[name]["environment"]["SHARDWRIGHT_DATABASE_URL"].startswith("postgresql://")
        assert services[name]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert [p.startswith("127.0.0.1:") for p in services["api"]["ports"]] == [True]
    assert not services["worker"].get("ports") and not services["postgres"].get("ports")


def test_compose_settings_are_settings_of_the_service() -> None:
    from service.settings import PREFIX, Settings

    known = {PREFIX + name.upper() for name in Settings.model_fields}
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for name in ("api", "worker"):
        assert set(compose["services"][name]["environment"]) <= known


def test_what_the_image_copies_is_there() -> None:
    dockerfile, ignore = (ROOT / "Dockerfile").read_text(), (ROOT / ".dockerignore").read_text().split()
    for line in re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE):
        assert all((ROOT / part).exists() for part in line.split())
    assert ignore[0] == "*"
    kept = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    assert all((ROOT / part).exists() for part in kept)
    assert {"solver", "service", "migrations", "requirements.lock"} <= set(kept)


def test_make_targets_are_documented_by_make_itself() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("serve", "test", "verify", "bench", "accuracy", "lock"):
        assert target in targets
        assert f"make {target}" in shown


@pytest.mark.parametrize("script", sorted(p.name for p in (ROOT / ".ci").iterdir()))
def test_shell_scripts_pass_shellcheck(script: str, shell_faults: Callable[[Path], str]) -> None:
    assert shell_faults(ROOT / ".ci" / script) == ""


def test_continuous_integration_passes_on_the_exit_code_of_make_test(tmp_path: Path) -> None:
    (tmp_path / "make").write_text("#!/bin/bash\necho \"make $*\"\nexit 7\n")
    (tmp_path / "make").chmod(0o755)
    done = subprocess.run(["bash", ROOT / ".ci" / "run"], capture_output=True, text=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False)
    assert (done.stdout, done.returncode) == ("make test\n", 7)
