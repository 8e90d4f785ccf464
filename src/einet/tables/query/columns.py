"""What a question has to know of a column, and how the values in its text are read."""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any, Literal

from einet.tables.constraints import Interval
from einet.tables.query.errors import QueryError, near, some
from einet.tables.query.lexer import Token

__all__ = ["AskedColumn", "AskedColumns", "as_category", "as_span", "from_seconds", "to_seconds"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PART_OF_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_TRUE, _FALSE = ("true", "yes", "1", "t", "y"), ("false", "no", "0", "f", "n")


@dataclass(frozen=True)
class AskedColumn:
    """A column as questions see it.

    Attributes:
        name: Its name.
        kind: ``number``; ``date``, whose numbers count from 1970; ``time``, whose numbers count
            from midnight; ``category``, or ``boolean``, whose values are False and True; or
            ``left out``, of which nothing is known.
        values: All values of a column of categories, in their order where they have one; of a
            column of numbers that holds few of them, these in ascending order.
        ordered: Whether they have one.
        step: The distance of neighbouring numbers, such as 1 of integers; None if any may be.
        lower: No number is below it, as far as is known; minus infinity where nothing is.
        upper: No number is above it.
        spikes: Numbers with a probability of their own, in a column that has others too.
        unit: How many seconds a number counts, of dates, times and durations; these are asked for,
            and told, in seconds.

    Example:
        >>> age = AskedColumn("age", "number", step=1, lower=0)
        >>> size = AskedColumn("size", "category", ("S", "M", "L"), ordered=True)
        >>> age.has_numbers, size.has_numbers, size.domain
        (True, False, ('S', 'M', 'L'))
    """

    name: str
    kind: Literal["number", "date", "time", "category", "boolean", "left out"]
    values: tuple[Hashable, ...] = ()
    ordered: bool = False
    step: float | int | None = None
    lower: float | int = -math.inf
    upper: float | int = math.inf
    spikes: tuple[float | int, ...] = ()
    unit: float | int = 1

    @property
    def has_numbers(self) -> bool:
        """Whether its cells lie in intervals, not among values."""
        return self.kind in ("number", "date", "time")

    @property
    def domain(self) -> tuple[Hashable, ...] | None:
        """All values of a column of categories; None of one of numbers."""
        return None if self.has_numbers else self.values

    def shown(self, number: float | int) -> Any:
        """A number of this column as its users know it: dates as text, integers without a point.

        Args:
            number: The number.

        Example:
            >>> AskedColumn("age", "number", step=1).shown(40.0)
            40
            >>> AskedColumn("born", "date", unit=86400).shown(365)  # days since 1970
            '1971-01-01'
        """
        if self.kind == "date":
            return from_seconds(float(number) * self.unit)
        if self.kind == "time":
            clock = from_seconds(float(number) * self.unit).removeprefix("1970-01-01")
            return clock.strip() or "00:00"
        if self.unit != 1:
            return float(number * self.unit)
        on_grid = self.step is not None and float(self.step).is_integer()
        if isinstance(number, int) or (on_grid and float(number).is_integer()):
            return int(number)
        return float(number)


#: The columns that can be asked for, by their names.
AskedColumns = Mapping[str, AskedColumn]


def to_seconds(moment: datetime) -> float:
    """Seconds since 1970; a moment without a time zone is one of UTC.

    >>> to_seconds(datetime(1970, 1, 2))
    86400.0
    """
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) / timedelta(seconds=1)


def from_seconds(seconds: float) -> str:
    """The moment as text, without a time of day at midnight.

    >>> from_seconds(86400.0)
    '1970-01-02'
    """
    try:
        moment = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None)
    except OverflowError:
        return f"{seconds:g} seconds since 1970"
    return moment.isoformat(sep=" ").removesuffix(" 00:00:00")


def as_category(column: AskedColumn, token: Token, text: str) -> Hashable:
    """The category that a word names.

    Args:
        column: A column of categories.
        token: The word.
        text: The question, for errors.

    Example:
        >>> as_category(AskedColumn("sex", "category", ("f", "m")), Token("word", "f", 0), "sex=f")
        'f'
    """
    word = token.text
    if column.kind == "boolean":
        for value, words in ((True, _TRUE), (False, _FALSE)):
            if word.casefold() in words and value in column.values:
                return value
    for value in column.values:
        if str(value) == word:
            return value
    number = _number(word)
    for value in column.values:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if number is not None and is_number and value == number:
            return value
    known = [str(value) for value in column.values]
    raise QueryError(
        f"{word!r} is no value of {column.name!r}, which has {some(known)}{near(word, known)}",
        text,
        token.position,
    )


def as_span(column: AskedColumn, token: Token, text: str) -> Interval:
    """The numbers that a word names: a point, or of a date the whole day, month or year.

    Args:
        column: A column of numbers or dates.
        token: The word.
        text: The question, for errors.

    Example:
        >>> print(as_span(AskedColumn("age", "number"), Token("word", "40", 0), "age=40"))
        [40, 40]
    """
    if column.kind in ("date", "time"):
        span = _moments(column, token, text)
        ends = (span.lower / column.unit, span.upper / column.unit)
        return Interval(*ends, span.closed_lower, span.closed_upper)
    number = _number(token.text)
    if number is None:
        raise QueryError(
            f"{token.text!r} is no number, as the values of {column.name!r} are",
            text,
            token.position,
        )
    if math.isinf(float(number)):
        raise QueryError(f"{token.text[:20]!r} is too large for a number", text, token.position)
    return Interval.at(number if column.unit == 1 else number / column.unit)


def _number(word: str) -> float | int | None:
    """The number that is written; None for other words, and for nan and inf."""
    # What Python reads as a number, too: 1_000, and infinity in words.
    if not re.fullmatch(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?", word):
        return None
    try:
        number = float(word)
    except ValueError:
        return None
    # Integers stay exact as long as a float is.
    return int(number) if abs(number) < 2**53 and number.is_integer() else number


def _moments(column: AskedColumn, token: Token, text: str) -> Interval:
    """The seconds that a date or a time of day names."""
    part = _PART_OF_DATE.fullmatch(token.text)
    example = "'2020-01-31' or '2020-01-31 12:00'"
    try:
        if column.kind == "time":
            example = "'12:30'"
            clock = time.fromisoformat(token.text).replace(tzinfo=None)
            return Interval.at(to_seconds(datetime.combine(_EPOCH.date(), clock)))
        if part is None:
            return Interval.at(to_seconds(datetime.fromisoformat(token.text)))
        year, month, day = (int(number) if number else None for number in part.groups())
        start = datetime(year or 0, month or 1, day or 1)
        if day is not None:
            days = 1
        elif month is not None:
            days = calendar.monthrange(start.year, month)[1]
        else:
            days = 366 if calendar.isleap(start.year) else 365
        first = to_seconds(start)
        return Interval(first, first + 86400.0 * days, closed_upper=False)
    except (ValueError, OverflowError):
        raise QueryError(
            f"{token.text!r} is no {column.kind} such as {example}, as the values of "
            f"{column.name!r} are",
            text,
            token.position,
        ) from None
