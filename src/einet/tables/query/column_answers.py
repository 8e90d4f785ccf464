"""Answers about one column: its mean, quantiles, most likely value or all its probabilities."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from einet.tables.constraints import Interval, Values
from einet.tables.query.columns import AskedColumn
from einet.tables.query.conditional import Conditional, multiple
from einet.tables.query.errors import QueryError
from einet.tables.query.lexer import Token
from einet.tables.query.means import mean
from einet.tables.query.quantiles import quantile
from einet.tables.query.syntax import Question

__all__ = ["answer_about", "probabilities"]

# Of a column of many numbers, a distribution is told by these.
_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
# So many numbers can be tried for the most likely one.
_MOST_TRIED = 4096


def answer_about(known: Conditional, question: Question) -> Any:
    """What a question asks of a column, in the terms of that column.

    Args:
        known: The column, given the question's condition.
        question: The question; of any function but ``probability``.
    """
    column, token, text = known.column, question.column, question.text
    assert token is not None
    function = question.function
    share = None if question.number is None else _share(question, question.number)
    if function == "mode":
        return _mode(known, token, text)
    if function == "distribution" and column.values:
        return probabilities(known)
    if column.kind == "boolean" and function == "mean":
        return probabilities(known).get(True, 0.0)
    if not column.has_numbers and not (column.ordered and function != "mean"):
        _refuse(column, function, token, text)
    if function == "mean":
        number = mean(known)
        # The mean of integers is seldom one.
        return number * column.unit if column.kind == "number" else column.shown(number)
    if function == "distribution":
        return {part: _shown(column, quantile(known, part)) for part in _SHARES}
    if function == "interval":
        assert share is not None
        outside = (1 - share) / 2
        return tuple(_shown(column, quantile(known, end)) for end in (outside, 1 - outside))
    return _shown(column, quantile(known, 0.5 if share is None else share))


def probabilities(known: Conditional) -> dict[Any, float]:
    """The probability of each value of a column of categories, or of a few numbers."""
    column = known.column
    numbers = column.has_numbers
    pieces = [(Interval.at(v) if numbers else Values([v]),) for v in column.values]  # type: ignore
    shares = known.shares(pieces)
    values = [_shown(column, value) for value in column.values]
    return dict(zip(values, shares.tolist(), strict=True))


def _mode(known: Conditional, token: Token, text: str) -> Any:
    """The most likely value."""
    column = known.column
    if not column.has_numbers:
        chances = probabilities(known)
        return max(chances, key=chances.__getitem__)
    if not known.values and known.numbers is not None:
        densest = known.numbers.mode()
        if densest is not None:
            return _shown(column, densest)
    numbers = list(known.values) or _grid(column)
    if not numbers:
        raise QueryError(
            f"{column.name!r} has too many numbers to try for the most likely one; ask for its "
            "median or its mean, E",
            text,
            token.position,
        )
    shares = known.shares([(Interval.at(number),) for number in numbers])
    return _shown(column, numbers[int(shares.argmax())])


def _grid(column: AskedColumn) -> list[Any]:
    """All numbers of a column on a grid; none where there are too many."""
    if column.step is None or not (column.upper - column.lower) / column.step < _MOST_TRIED:
        return []
    at = multiple(column.step)
    first, last = round(column.lower / column.step), round(column.upper / column.step)
    return [at(number) for number in range(first, last + 1)]


def _share(question: Question, token: Token) -> float:
    """The number of a quantile or an interval."""
    try:
        share = float(token.text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise QueryError(
            f"{question.function} needs a number above 0 and below 1 first, got {token.text!r}",
            question.text,
            token.position,
        )
    return share


def _refuse(column: AskedColumn, function: str, token: Token, text: str) -> NoReturn:
    why = "without an order, so no quantiles"
    if function == "mean":
        why = "that are no numbers, so no mean"
    raise QueryError(
        f"{column.name!r} has values {why}; ask for its mode or distribution", text, token.position
    )


def _shown(column: AskedColumn, value: Any) -> Any:
    return column.shown(value) if column.has_numbers else value
