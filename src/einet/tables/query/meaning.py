"""What a condition says of the columns that there are: its formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from einet.tables.constraints import Interval, Pieces, Values, complement, union
from einet.tables.query.algebra import Atom, Formula, all_of, any_of
from einet.tables.query.columns import AskedColumn, AskedColumns, as_category, as_span
from einet.tables.query.errors import QueryError, near, some
from einet.tables.query.lexer import Token
from einet.tables.query.syntax import (
    All,
    Any,
    Comparison,
    Condition,
    Membership,
    Missing,
    Not,
    Truth,
)

__all__ = ["column_of", "formula_of"]

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# The same comparison with its sides exchanged.
_TURNED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def formula_of(condition: Condition, columns: AskedColumns, text: str) -> Formula:
    """The formula of a condition, each of whose parts is checked against its column.

    Args:
        condition: The condition.
        columns: The columns that there are.
        text: The question, for errors.

    Example:
        >>> from einet.tables.query.parser import parse_condition
        >>> age = AskedColumn("age", "number")
        >>> text = "not age < 40"
        >>> formula = formula_of(parse_condition(text), {"age": age}, text)
        >>> print(*formula.pieces)
        [40, inf)
    """
    return _Reader(columns, text).formula(condition, holds=True)


def column_of(token: Token, columns: AskedColumns, text: str) -> AskedColumn:
    """The column that a word names.

    Args:
        token: The word; one in single quotes is a value and no name.
        columns: The columns that there are.
        text: The question, for errors.
    """
    column = columns.get(token.text)
    if column is None or token.quote == "'":
        hint = near(token.text, columns) or f"; there are {some(columns)}"
        if column is not None:
            hint = "; names have no quotes, double ones or backticks"
        raise QueryError(f"there is no column {token.text!r}{hint}", text, token.position)
    if column.kind == "left out":
        raise QueryError(
            f"{token.text!r} was left out of the model, which knows nothing of it",
            text,
            token.position,
        )
    return column


class _Reader:
    """Reads conditions against some columns; what must not hold is turned at its atoms."""

    def __init__(self, columns: AskedColumns, text: str) -> None:
        self.columns, self.text = columns, text

    def formula(self, condition: Condition, holds: bool) -> Formula:
        if isinstance(condition, Not):
            return self.formula(condition.part, not holds)
        if isinstance(condition, All | Any):
            parts = [self.formula(part, holds) for part in condition.parts]
            # Not all of them hold: one of them does not.
            return all_of(parts) if isinstance(condition, All) is holds else any_of(parts)
        if isinstance(condition, Missing):
            self.fail(
                "a model knows no probability of missing cells: it leaves them open, so leave the "
                "column out",
                condition.column,
            )
        if isinstance(condition, Comparison):
            return self.comparison(condition, holds)
        column = column_of(condition.column, self.columns, self.text)
        if isinstance(condition, Truth):
            if column.kind != "boolean":
                self.fail(
                    f"{column.name!r} by itself says nothing, as it is not true or false; compare "
                    "it with something",
                    condition.column,
                )
            return self.atom(column, self.among(column, [True]), holds)
        assert isinstance(condition, Membership)
        return self.atom(column, self.membership(column, condition.values), holds)

    def atom(self, column: AskedColumn, pieces: Pieces, holds: bool) -> Formula:
        if not holds:
            pieces = complement(pieces, column.domain)
        if not pieces or pieces == (Interval(),):
            return bool(pieces)
        return Atom(column.name, pieces)

    def among(self, column: AskedColumn, values: Sequence[object]) -> Pieces:
        kept = [value for value in values if value in column.values]
        return (Values(kept),) if kept else ()

    def membership(self, column: AskedColumn, values: Sequence[Token]) -> Pieces:
        if column.has_numbers:
            return union(as_span(column, value, self.text) for value in values)
        return self.among(column, [as_category(column, value, self.text) for value in values])

    # -- Comparisons --

    def comparison(self, condition: Comparison, holds: bool) -> Formula:
        parts = []
        operands, signs = condition.operands, condition.signs
        for left, sign, right in zip(operands[:-1], signs, operands[1:], strict=True):
            column, value, turned = self.sides(left, sign, right)
            word = _TURNED[sign.text] if turned else sign.text
            word = word if holds else _OPPOSITE[word]
            parts.append(self.atom(column, self.compared(column, word, value, sign), holds=True))
        # 30 <= age < 40 fails where one of its two halves does.
        return all_of(parts) if holds else any_of(parts)

    def sides(self, left: Token, sign: Token, right: Token) -> tuple[AskedColumn, Token, bool]:
        """The column of a comparison, the value, and whether the value comes first."""
        left_names, right_names = self.names_column(left), self.names_column(right)
        if left_names and right_names:
            self.fail(
                f"{left.text!r} and {right.text!r} are both columns, which cannot be compared with "
                "each other; a value of that name needs single quotes",
                sign,
            )
        if right_names:
            return column_of(right, self.columns, self.text), left, True
        if left_names:
            return column_of(left, self.columns, self.text), right, False
        # None of them is. What can be no number is the name that was meant, the left one if both.
        meant = right if left.quote == "'" or _looks_like_number(left) else left
        if meant.quote == "'" or _looks_like_number(meant):
            self.fail("there is no column in this comparison", left)
        column_of(meant, self.columns, self.text)
        raise AssertionError("a name that is no column was found to be one")

    def names_column(self, token: Token) -> bool:
        return token.quote != "'" and token.text in self.columns

    def compared(self, column: AskedColumn, sign: str, value: Token, at: Token) -> Pieces:
        if column.has_numbers:
            return _beside(as_span(column, value, self.text), sign)
        category = as_category(column, value, self.text)
        if sign in ("=", "!="):
            is_it = self.among(column, [category])
            return is_it if sign == "=" else complement(is_it, column.values)
        if not column.ordered:
            self.fail(
                f"the values of {column.name!r} have no order; compare them with =, != or in", at
            )
        place = column.values.index(category)
        kept = {
            "<": column.values[:place],
            "<=": column.values[: place + 1],
            ">": column.values[place + 1 :],
            ">=": column.values[place:],
        }[sign]
        return self.among(column, kept)

    def fail(self, message: str, token: Token) -> NoReturn:
        raise QueryError(message, self.text, token.position)


def _beside(span: Interval, sign: str) -> Pieces:
    """The numbers that compare so with a point, or with a day, month or year."""
    below = Interval(upper=span.lower, closed_upper=not span.closed_lower)
    up_to = Interval(upper=span.upper, closed_upper=span.closed_upper)
    if sign in ("<", ">="):
        return (below,) if sign == "<" else complement([below])
    if sign in ("<=", ">"):
        return (up_to,) if sign == "<=" else complement([up_to])
    return (span,) if sign == "=" else complement([span])


def _looks_like_number(token: Token) -> bool:
    return token.quote == "" and token.text[:1] in "+-.0123456789"
