"""Random conditions, each with the test of a row that it should be."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.tables.query.enumeration import CELLS, COLUMNS


class Said(NamedTuple):
    """A condition in words, and what it means."""

    text: str
    holds: Callable[[Mapping[str, Any]], bool]


_SIGNS = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBERS = (-2.0, -1.0, 0.0, 0.1, 0.25, 1, 2, 2.5, 3, 4, 7)


def named(column: str) -> str:
    """A column as questions write it."""
    return f'"{column}"' if " " in column else column


def valued(value: Any) -> str:
    """A value as questions write it."""
    return f"'{value}'" if isinstance(value, str) and not value.isalpha() else str(value)


def _rank(column: str, value: Any) -> Any:
    """What comparisons go by."""
    return CELLS[column].index(value) if column == "grade" else value


def _values(column: str) -> tuple[Any, ...]:
    return _NUMBERS if COLUMNS[column].has_numbers else CELLS[column]


@st.composite
def comparisons(draw: st.DrawFn) -> Said:
    """``age < 3``, ``3 > age``, ``1 <= age < 3``, ``age in {1, 2}``, ``member``."""
    column = draw(st.sampled_from(sorted(CELLS)))
    shape = draw(st.sampled_from(["after", "before", "chain", "in", "not in", "bare"]))
    values = _values(column)
    has_order = COLUMNS[column].has_numbers or column == "grade"
    signs = sorted(_SIGNS) if has_order else ["!=", "=", "=="]
    one, two = draw(st.sampled_from(values)), draw(st.sampled_from(values))
    first, second = draw(st.sampled_from(signs)), draw(st.sampled_from(signs))

    def compared(row: Mapping[str, Any], sign: str, value: Any, turned: bool = False) -> bool:
        sides = _rank(column, row[column]), _rank(column, value)
        return _SIGNS[sign](*(sides[::-1] if turned else sides))

    if shape == "before":
        text = f"{valued(one)} {first} {named(column)}"
        return Said(text, lambda row: compared(row, first, one, turned=True))
    if shape == "chain":
        text = f"{valued(one)}{first}{named(column)} {second} {valued(two)}"
        return Said(
            text,
            lambda row: compared(row, first, one, turned=True) and compared(row, second, two),
        )
    if shape in ("in", "not in"):
        text = f"{named(column)} {shape} {{{valued(one)}, {valued(two)}}}"
        return Said(text, lambda row: (row[column] in (one, two)) == (shape == "in"))
    if shape == "bare":
        return Said("member", lambda row: row["member"])
    return Said(f"{named(column)}{first}{valued(one)}", lambda row: compared(row, first, one))


def _joined(parts: list[Said], word: str) -> Said:
    every = any if word == " or " else all
    text = word.join(f"({part.text})" for part in parts)
    return Said(text, lambda row: every(part.holds(row) for part in parts))


def _not(part: Said) -> Said:
    return Said(f"not ({part.text})", lambda row: not part.holds(row))


def _longer(inner: st.SearchStrategy[Said]) -> st.SearchStrategy[Said]:
    several = st.lists(inner, min_size=2, max_size=3)
    words = st.sampled_from([" or ", " and ", ", "])
    return st.builds(_joined, several, words) | inner.map(_not)


CONDITIONS = st.recursive(comparisons(), _longer, max_leaves=5)
