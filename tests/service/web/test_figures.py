"""Numbers as people read them."""

import doctest

import pytest

from service.web import figures, merge, result
from service.web.views import plans


@pytest.mark.parametrize("module", [figures, merge, result, plans])
def test_the_examples_in_the_docstrings_hold(module: object) -> None:
    outcome = doctest.testmod(module)  # type: ignore[arg-type]
    assert outcome.attempted > 0
    assert outcome.failed == 0
