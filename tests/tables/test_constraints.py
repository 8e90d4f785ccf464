"""Pieces of columns against membership, number by number."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet.tables.constraints import (
    Interval,
    Values,
    complement,
    covers,
    intersection,
    is_in_box,
    union,
)

ENDS = (-math.inf, -2.0, -1.0, 0.0, 1.0, 2.0, math.inf)
# Every end, and a number between any two of them: no two constraints differ elsewhere.
NUMBERS = [-3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
LETTERS = "abcde"


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    lower, upper = sorted((draw(st.sampled_from(ENDS)), draw(st.sampled_from(ENDS))))
    if lower == upper:
        return Interval.at(lower if math.isfinite(lower) else 0.0)
    return Interval(lower, upper, draw(st.booleans()), draw(st.booleans()))


PIECES = st.lists(intervals(), max_size=4)
SETS = st.lists(st.sets(st.sampled_from(LETTERS), min_size=1), max_size=3)


def where(pieces, domain) -> list[bool]:
    return [covers(pieces, value) for value in domain]


def check_tidy(pieces) -> None:
    """No number lies in two pieces, and none could be one with the next."""
    for number in NUMBERS:
        assert sum(number in piece for piece in pieces) <= 1
    for one, other in itertools.pairwise(pieces):
        assert one.upper < other.lower or not (one.closed_upper or other.closed_lower)


@given(PIECES, PIECES)
def test_intervals_are_joined_cut_and_turned_as_sets_are(one, other):
    in_one, in_other = where(one, NUMBERS), where(other, NUMBERS)
    both, either, none = intersection(one, other), union(one + other), complement(one)
    pairs = list(zip(in_one, in_other, strict=True))
    assert where(both, NUMBERS) == [first and second for first, second in pairs]
    assert where(either, NUMBERS) == [first or second for first, second in pairs]
    assert where(none, NUMBERS) == [not first for first in in_one]
    for pieces in (both, either, none):
        check_tidy(pieces)
    assert complement(none) == union(one)


@given(SETS, SETS)
def test_values_are_joined_cut_and_turned_as_sets_are(one, other):
    one, other = [Values(values) for values in one], [Values(values) for values in other]
    in_one, in_other = where(one, LETTERS), where(other, LETTERS)
    pairs = list(zip(in_one, in_other, strict=True))
    assert where(intersection(one, other), LETTERS) == [a and b for a, b in pairs]
    assert where(union(one + other), LETTERS) == [a or b for a, b in pairs]
    assert where(complement(one, LETTERS), LETTERS) == [not a for a in in_one]


@given(intervals(), st.integers(-4, 4))
def test_integers_of_an_interval(interval, number):
    integers = interval.of_integers()
    assert (number in interval) == (integers is not None and number in integers)
    if integers is not None:
        assert all(math.isinf(end) or end == int(end) for end in (integers.lower, integers.upper))
        assert integers.closed_lower or math.isinf(integers.lower)


def test_ends_at_infinity_are_written_in_one_way():
    assert Interval(0, math.inf, True, True) == Interval(0, math.inf, True, False)
    assert str(Interval()) == "(-inf, inf)"
    assert math.inf not in Interval()
    assert complement([Interval()]) == ()
    assert complement([]) == (Interval(),)


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        ((2, 1), "must hold some number, got \\[2, 1\\]"),
        ((1, 1, True, False), "must hold some number, got \\[1, 1\\)"),
        ((math.inf, math.inf), "must hold some number"),
        ((math.nan, 1), "lower must be a number, got nan"),
        ((False, 1), "lower must be a number, got False"),
    ],
)
def test_no_interval_is_empty_or_odd(ends, error):
    with pytest.raises((ValueError, TypeError), match=error):
        Interval(*ends)


def test_values_must_be_some():
    with pytest.raises(ValueError, match="one value at least"):
        Values([])
    with pytest.raises(TypeError, match="a set or a list of values, got 'ab'"):
        Values("ab")


def test_numbers_and_values_do_not_mix():
    mixed = [Interval(0, 1), Values(["a"])]
    for wrong in (lambda: union(mixed), lambda: intersection(mixed[:1], mixed[1:])):
        with pytest.raises(TypeError, match="a column has intervals or values"):
            wrong()
    with pytest.raises(TypeError, match="domain must hold all values"):
        complement(mixed[1:])
    with pytest.raises(TypeError, match="domain is for values"):
        complement(mixed[:1], ["a"])


def test_a_row_is_in_a_box_if_all_its_cells_are():
    box = {"age": (Interval(0, 1), Interval(3, 4)), "sex": (Values(["f"]),)}
    assert is_in_box(box, {"age": 3, "sex": "f", "more": None})
    assert not is_in_box(box, {"age": 2, "sex": "f"})
    assert not is_in_box(box, {"age": 3, "sex": "m"})
    assert is_in_box({}, {"age": 2})
