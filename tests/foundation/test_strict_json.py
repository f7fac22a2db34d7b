"""JSON that every reader of the standard takes."""

import json
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.foundation.strict_json import count_not_finite, json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.floats() | st.dates(), inner)
        | st.tuples(inner, inner)
    ),
)


def _refuse(word: str) -> None:
    pytest.fail(f"{word} is not JSON")


@given(VALUES, st.sampled_from([None, 2]))
def test_no_value_makes_anything_but_json(value: object, indent: int | None) -> None:
    text = json_text(value, indent=indent)
    json.loads(text.encode(), parse_constant=_refuse)


@pytest.mark.parametrize(
    ("value", "expected", "count"),
    [
        (float("nan"), "null", 1),
        ([1.5, float("inf"), {"a": (float("-inf"),)}], '[1.5, null, {"a": [null]}]', 2),
        ({date(2026, 1, 2): 1}, '{"2026-01-02": 1}', 0),
        ({True: 1, None: 2, 3: 4}, '{"true": 1, "null": 2, "3": 4}', 0),
        ("\udcffä", '"\\udcffä"', 0),
    ],
)
def test_what_json_lacks_is_null_or_text(value: object, expected: str, count: int) -> None:
    assert json_text(value) == expected
    assert count_not_finite(value) == count
