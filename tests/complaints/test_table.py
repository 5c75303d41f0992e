"""The table of the package names tests that are there."""
import re
from pathlib import Path

import pytest

import tests.complaints

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (\S.*?#\d+.*?) \| .+? \| (tests/\S+\.py)::(test_\w+) \|$", tests.complaints.__doc__ or "", re.MULTILINE)


def test_the_table_has_its_rows() -> None:
    assert len(ROWS) > 30


@pytest.mark.parametrize(("thread", "file", "name"), ROWS)
def test_each_thread_has_its_test(thread: str, file: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / file).read_text(), thread
