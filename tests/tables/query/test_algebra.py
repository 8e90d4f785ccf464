"""Boxes of formulas against the rows that they should hold."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet.tables.constraints import Interval, Values, is_in_box
from einet.tables.query.algebra import Atom, all_of, any_of, disjoint_boxes

DOMAINS = {"n": None, "m": None, "c": ("x", "y", "z"), "d": (False, True)}
# All ends of intervals below, and numbers between.
NUMBERS = (-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
CELLS = {"n": NUMBERS, "m": NUMBERS, "c": DOMAINS["c"], "d": DOMAINS["d"]}
ROWS = [dict(zip(CELLS, cells, strict=True)) for cells in itertools.product(*CELLS.values())]


@st.composite
def atoms(draw: st.DrawFn):
    """An atom, and the test of a row that it stands for."""
    column = draw(st.sampled_from(sorted(DOMAINS)))
    domain = DOMAINS[column]
    if domain is not None:
        kept = draw(st.sets(st.sampled_from(domain), min_size=1))
        return ("values", column, tuple(sorted(kept)))
    lower, upper = draw(st.sampled_from([(-math.inf, 1), (0, 2), (1, math.inf), (0, 1), (2, 2)]))
    closed = lower == upper or draw(st.booleans())
    return ("interval", column, (lower, upper, closed))


FORMULAS = st.recursive(
    atoms(),
    lambda inner: st.tuples(
        st.sampled_from(["all", "any"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


def built(plan):
    if plan[0] in ("all", "any"):
        return (all_of if plan[0] == "all" else any_of)([built(part) for part in plan[1]])
    kind, column, what = plan
    return Atom(column, (Values(what) if kind == "values" else Interval(*what),))


def holds(plan, row) -> bool:
    if plan[0] in ("all", "any"):
        return (all if plan[0] == "all" else any)(holds(part, row) for part in plan[1])
    kind, column, what = plan
    if kind == "values":
        return row[column] in what
    lower, upper, closed = what
    return (lower < row[column] or (closed and lower == row[column])) and row[column] <= upper


@given(FORMULAS)
def test_every_row_is_in_one_box_if_it_should_and_in_none_if_not(plan):
    boxes = disjoint_boxes(built(plan), DOMAINS)
    for row in ROWS:
        assert sum(is_in_box(box, row) for box in boxes) == holds(plan, row)


def atom(number: int, lower: float = 0) -> Atom:
    return Atom(f"column {number:04}", (Interval(lower),))


def test_ands_take_one_box_and_ors_as_many_as_there_are_columns():
    many = [atom(number) for number in range(1500)]
    domains = dict.fromkeys((part.column for part in many), None)
    (box,) = disjoint_boxes(all_of(many), domains)
    assert len(box) == 1500
    few = many[:200]
    assert len(disjoint_boxes(any_of(few), domains)) == 200


def test_one_column_takes_one_box_whatever_is_said_of_it():
    parts = [Atom("n", (Interval.at(number),)) for number in range(100)]
    (box,) = disjoint_boxes(any_of(parts), {"n": None})
    assert len(box["n"]) == 100


def test_values_that_are_all_that_there_are_say_nothing():
    whole = Atom("c", (Values(["x", "y", "z"]),))
    assert disjoint_boxes(whole, DOMAINS) == [{}]
    assert disjoint_boxes(True, DOMAINS) == [{}]
    assert disjoint_boxes(False, DOMAINS) == []


def odd(parts):
    """That an odd number of columns is not negative."""
    is_odd, is_even = False, True
    for part in parts:
        below = Atom(part.column, (Interval(upper=0, closed_upper=False),))
        is_odd, is_even = (
            any_of([all_of([is_even, part]), all_of([is_odd, below])]),
            any_of([all_of([is_odd, part]), all_of([is_even, below])]),
        )
    return is_odd


def test_too_many_boxes_are_refused():
    parts = [atom(number) for number in range(7)]
    domains = dict.fromkeys((part.column for part in parts), None)
    assert len(disjoint_boxes(odd(parts), domains)) == 2**6
    with pytest.raises(ValueError, match="more than 50 disjoint pieces"):
        disjoint_boxes(odd(parts), domains, most=50)


def test_work_for_nothing_is_bounded_too():
    # Four pigeons in three holes, no two in one: no box at all, and no short way to see it.
    sits = {pair: f"{pair}" for pair in itertools.product(range(4), range(3))}
    domains = dict.fromkeys(sits.values(), (False, True))
    each = [
        any_of(Atom(sits[pigeon, hole], (Values([True]),)) for hole in range(3))
        for pigeon in range(4)
    ]
    alone = [
        any_of(Atom(sits[pigeon, hole], (Values([False]),)) for pigeon in pair)
        for hole in range(3)
        for pair in itertools.combinations(range(4), 2)
    ]
    never = all_of([*each, *alone])
    assert disjoint_boxes(never, domains) == []
    with pytest.raises(ValueError, match="more than 2 disjoint pieces"):
        disjoint_boxes(never, domains, most=2)


def test_neighbouring_floats_have_nothing_between_them():
    one, two = 1.0, math.nextafter(1.0, 2.0)
    gap = Atom("n", (Interval(one, two, False, False),))
    points = Atom("n", (Interval.at(one), Interval.at(two)))
    (box,) = disjoint_boxes(any_of([gap, points]), {"n": None})
    assert box == {"n": (Interval(one, two),)}
