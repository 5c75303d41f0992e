"""The strict parser agrees with the lax one wherever that one is right."""
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.strict_json import MAX_DEPTH, MAX_INTEGER, MalformedJson, parse

NUMBERS = st.integers(-MAX_INTEGER, MAX_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(st.none() | st.booleans() | NUMBERS | st.text(),
                      lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@given(VALUES)
def test_what_is_json_is_read_as_it_is(value: Any) -> None:
    assert parse(json.dumps(value).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        parse(raw)
    except MalformedJson as e:
        assert e.faults and all(f.message and f.legal for f in e.faults)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_depth_is_bounded_exactly(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    parse((opening * MAX_DEPTH + "1" + closing * MAX_DEPTH).encode())
    with pytest.raises(MalformedJson, match="nested"):
        parse((opening * (MAX_DEPTH + 1) + "1" + closing * (MAX_DEPTH + 1)).encode())


def test_brackets_in_strings_are_no_depth() -> None:
    assert parse(json.dumps(["[" * 1000 + '\\"{' * 100]).encode())


@pytest.mark.parametrize("number", [MAX_INTEGER, -MAX_INTEGER, 0, 10**17])
def test_integers_up_to_the_bound(number: int) -> None:
    assert parse(str(number).encode()) == number


@pytest.mark.parametrize("text", [str(MAX_INTEGER + 1), "1" * 25, "1" * 5000])
def test_integers_beyond_the_bound(text: str) -> None:
    with pytest.raises(MalformedJson, match="integers from|number"):
        parse(text.encode())


def test_escaped_pairs_of_surrogates_are_characters() -> None:
    assert parse(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}
