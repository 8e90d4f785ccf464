"""Names of columns: read, checked, and matched."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet.data.columns import as_columns, names_of, order_of

NAMES = st.lists(st.text(max_size=3), unique=True, max_size=8).map(tuple)


@given(NAMES, st.randoms())
def test_every_order_is_put_right(names: tuple[str, ...], order: random.Random):
    mixed = tuple(order.sample(names, len(names)))
    places = order_of(mixed, names, "x")
    assert tuple(mixed) == names if places is None else [mixed[p] for p in places] == list(names)


@given(NAMES, NAMES)
def test_other_names_are_refused(given_names: tuple[str, ...], wanted: tuple[str, ...]):
    if set(given_names) == set(wanted):
        return
    with pytest.raises(ValueError, match="x must have the .* columns of the model"):
        order_of(given_names, wanted, "x")


def test_long_lists_are_cut():
    many = tuple(f"{'long ' * 30}{number}" for number in range(1000))
    with pytest.raises(ValueError, match="and 995 more missing and 'a' unknown") as raised:
        order_of(("a",), many, "x")
    assert len(str(raised.value)) < 600


def test_numbers_are_positions():
    assert names_of([0, 1, 2], "x") == (None, None)
    assert names_of([1, 0], "x") == (None, [1, 0])
    assert names_of([], "x") == (None, None)
    for labels in ([1, 2], [0, 0], [True, False], [0, "1"], [0.0, 1.0], [("a", 1), ("a", 2)]):
        if len(set(map(str, labels))) == 2:
            assert names_of(labels, "x") == (tuple(map(str, labels)), None)
        else:
            with pytest.raises(ValueError, match="x must have distinct columns, got '0' more"):
                names_of(labels, "x")


@pytest.mark.parametrize("columns", ["ab", b"ab", 3, ["a", 1], [None, "a"], 1.5])
def test_names_are_text(columns):
    with pytest.raises(TypeError, match="columns must be a sequence of strings or None, got"):
        as_columns(columns, 2)


def test_there_is_a_name_for_each_variable():
    assert as_columns(iter(["a", ""]), 2) == ("a", "")
    with pytest.raises(ValueError, match="one name for each of 2 variables, got 1"):
        as_columns(["a"], 2)
    with pytest.raises(ValueError, match="columns must be distinct, got 'a' more than once"):
        as_columns(["a", "a"], 2)
