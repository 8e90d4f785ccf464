"""Plain values are what they must be, or named in an error."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet.learning.plain import as_count, as_fields, as_flag, as_list, as_number

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(JSON)
def test_everything_is_taken_or_refused_by_name(value: Any):
    def taken(check: Any, *arguments: Any) -> bool:
        try:
            result = check(value, "the name", *arguments)
        except ValueError as error:
            assert str(error).startswith("the name must")  # noqa: PT017
            return False
        assert result == value
        return True

    plain = not isinstance(value, bool)
    assert taken(as_count, 0, 5) == (plain and isinstance(value, int) and 0 <= value <= 5)
    number = plain and isinstance(value, int | float) and value < math.inf
    assert taken(as_number) == (number and not math.isnan(value))
    assert taken(as_number, 0.0) == (number and value >= 0)
    assert taken(as_flag) == isinstance(value, bool)
    assert taken(as_list) == isinstance(value, list)
    assert taken(as_list, range(2)) == (isinstance(value, list) and len(value) < 2)
    assert taken(as_fields, ["a"]) == (isinstance(value, dict) and set(value) == {"a"})


def test_long_values_are_shortened():
    with pytest.raises(ValueError, match="must be a list") as error:
        as_list("x" * 10**6, "train")
    assert len(str(error.value)) < 200
    with pytest.raises(ValueError, match="must have 0 to 9 entries, got 12"):
        as_list([1] * 12, "train", range(10))
