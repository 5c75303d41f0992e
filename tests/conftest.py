"""Options of the whole suite."""
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write recorded files (exports, snapshots) anew instead of comparing with them")


@pytest.fixture
def record(request: pytest.FixtureRequest) -> bool:
    """Whether recorded files are to be written anew."""
    return bool(request.config.getoption("--record"))
