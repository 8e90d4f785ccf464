"""What may be known of a cell of a table: that it lies in an interval, or among some values.

A column's constraint is made of *pieces* that do not overlap: intervals of a column of numbers, or
one set of values of a column of categories. A :data:`Box` has pieces for each of some columns, and
holds the rows that satisfy all of them. The model is not known here, nor are the columns.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from einet._checks import check_flag, shown

__all__ = [
    "Box",
    "Constraint",
    "Interval",
    "Pieces",
    "Values",
    "complement",
    "covers",
    "intersection",
    "is_in_box",
    "union",
]


@dataclass(frozen=True)
class Interval:
    r"""The numbers from :math:`a` to :math:`b`, each end with or without itself.

    An interval is never empty: :math:`a < b`, or :math:`a = b` and both ends belong to it, which
    makes it a point. An end at infinity belongs to no interval, whatever is said.

    Args:
        lower: :math:`a`, or minus infinity.
        upper: :math:`b`, or infinity.
        closed_lower: Whether :math:`a` belongs to it.
        closed_upper: Whether :math:`b` does.

    Example:
        >>> ages = Interval(30, 40, closed_upper=False)
        >>> print(ages), 30 in ages, 40 in ages
        [30, 40)
        (None, True, False)
    """

    lower: float | int = -math.inf
    upper: float | int = math.inf
    closed_lower: bool = True
    closed_upper: bool = True

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            end = getattr(self, name)
            if isinstance(end, bool) or not isinstance(end, Real) or math.isnan(end):
                raise TypeError(f"{name} must be a number, got {shown(end)}")
        for name, end in (("closed_lower", self.lower), ("closed_upper", self.upper)):
            check_flag(name, getattr(self, name))
            if math.isinf(end):
                object.__setattr__(self, name, False)
        if not _is_interval(self.lower, self.upper, self.closed_lower, self.closed_upper):
            raise ValueError(f"an interval must hold some number, got {self}")

    @classmethod
    def at(cls, point: float | int) -> Interval:
        """The interval of one point.

        >>> print(Interval.at(3))
        [3, 3]
        """
        return cls(point, point)

    @property
    def is_point(self) -> bool:
        """Whether it holds one number only."""
        return self.lower == self.upper

    def __contains__(self, number: Any) -> bool:
        above = self.lower <= number if self.closed_lower else self.lower < number
        return above and (number <= self.upper if self.closed_upper else number < self.upper)

    def __str__(self) -> str:
        start, end = "[" if self.closed_lower else "(", "]" if self.closed_upper else ")"
        return f"{start}{self.lower:g}, {self.upper:g}{end}"

    def of_integers(self) -> Interval | None:
        """The same integers with both finite ends among them; None where there is no integer in it.

        >>> print(Interval(29.5, 40, closed_upper=False).of_integers())
        [30, 39]
        """
        lower, upper = self.lower, self.upper
        if math.isfinite(lower):
            # Not `floor(lower) + 1` of a closed end: an integer that belongs to it stays.
            lower = math.ceil(lower) if self.closed_lower else math.floor(lower) + 1
        if math.isfinite(upper):
            upper = math.floor(upper) if self.closed_upper else math.ceil(upper) - 1
        return Interval(float(lower), float(upper)) if lower <= upper else None


@dataclass(frozen=True)
class Values:
    """Some values of a column of categories; never none of them.

    Args:
        values: The values: what the cells of the column hold.

    Example:
        >>> "Masters" in Values(["Bachelors", "Masters"])
        True
    """

    values: frozenset[Any]

    def __init__(self, values: Iterable[Hashable]) -> None:
        if isinstance(values, str | bytes):
            raise TypeError(f"values must be a set or a list of values, got {shown(values)}")
        kept = frozenset(values)
        if not kept:
            raise ValueError("values must hold one value at least, got none")
        object.__setattr__(self, "values", kept)

    def __contains__(self, value: Any) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return "{" + ", ".join(sorted(map(str, self.values))) + "}"


#: One piece of what is known of a cell.
Constraint = Interval | Values

#: Pieces of one column, none of which overlap: intervals in ascending order, or one set of values.
#: No pieces at all are a constraint that nothing satisfies.
Pieces = tuple[Constraint, ...]

#: For each of some columns, its pieces; the rows that satisfy all of them.
Box = Mapping[str, Pieces]


def intersection(one: Iterable[Constraint], other: Iterable[Constraint]) -> Pieces:
    """What lies in both.

    Args:
        one: Pieces of a column.
        other: Pieces of the same column.

    Example:
        >>> [str(piece) for piece in intersection([Interval(upper=3)], [Interval(1)])]
        ['[1, 3]']
    """
    others = list(other)
    both = (_both(first, second) for first in one for second in others)
    return union(piece for piece in both if piece is not None)


def union(pieces: Iterable[Constraint]) -> Pieces:
    """What lies in any of them, as pieces that do not overlap; as few as possible.

    Args:
        pieces: Pieces of one column, in any order; they may overlap.

    Example:
        >>> numbers = union([Interval(5, 6), Interval(0, 1), Interval(1, 2, closed_lower=False)])
        >>> [str(piece) for piece in numbers]
        ['[0, 2]', '[5, 6]']
    """
    given = list(pieces)
    intervals = [piece for piece in given if isinstance(piece, Interval)]
    values = [piece for piece in given if isinstance(piece, Values)]
    if intervals and values:
        raise TypeError(f"a column has intervals or values, got {intervals[0]} and {values[0]}")
    if values:
        return (Values(frozenset().union(*(piece.values for piece in values))),)
    merged: list[Interval] = []
    # Of those that begin alike, the one with its end comes first.
    for piece in sorted(intervals, key=lambda piece: (piece.lower, not piece.closed_lower)):
        if merged and _touch(merged[-1], piece):
            merged[-1] = _joined(merged[-1], piece)
        else:
            merged.append(piece)
    return tuple(merged)


def complement(pieces: Iterable[Constraint], domain: Iterable[Hashable] | None = None) -> Pieces:
    """What lies in none of them.

    Args:
        pieces: Pieces of one column.
        domain: All values of a column of categories; None for a column of numbers.

    Example:
        >>> [str(piece) for piece in complement([Interval(0, 1, closed_upper=False)])]
        ['(-inf, 0)', '[1, inf)']
        >>> print(*complement([Values(["a"])], domain=["a", "b", "c"]))
        {b, c}
    """
    kept = union(pieces)
    if domain is not None:
        if any(isinstance(piece, Interval) for piece in kept):
            raise TypeError(f"domain is for values, got {kept[0]} and a domain")
        taken: frozenset[Any] = frozenset().union(*(piece.values for piece in _values(kept)))
        rest = [value for value in domain if value not in taken]
        return (Values(rest),) if rest else ()
    if any(isinstance(piece, Values) for piece in kept):
        raise TypeError(f"domain must hold all values of the column, got none for {kept[0]}")
    ends: list[tuple[float | int, bool]] = [(-math.inf, False)]
    for piece in _intervals(kept):
        # Where one ends without its end, the next begins with it.
        ends += [(piece.lower, not piece.closed_lower), (piece.upper, not piece.closed_upper)]
    ends.append((math.inf, False))
    between = ((*start, *end) for start, end in zip(ends[::2], ends[1::2], strict=True))
    return tuple(
        Interval(lower, upper, closed_lower, closed_upper)
        for lower, closed_lower, upper, closed_upper in between
        if _is_interval(lower, upper, closed_lower, closed_upper)
    )


def covers(pieces: Sequence[Constraint], value: Any) -> bool:
    """Whether a cell satisfies them.

    >>> covers(union([Interval(0, 1), Interval(2, 3)]), 2.5)
    True
    """
    return any(value in piece for piece in pieces)


def is_in_box(box: Box, row: Mapping[str, Any]) -> bool:
    """Whether a row satisfies all pieces of a box.

    >>> box = {"age": (Interval(30, 40),), "sex": (Values(["Female"]),)}
    >>> is_in_box(box, {"age": 35, "sex": "Female", "job": "nurse"})
    True
    """
    return all(covers(pieces, row[column]) for column, pieces in box.items())


def _values(pieces: Pieces) -> list[Values]:
    return [piece for piece in pieces if isinstance(piece, Values)]


def _intervals(pieces: Pieces) -> list[Interval]:
    return [piece for piece in pieces if isinstance(piece, Interval)]


def _is_interval(lower: Any, upper: Any, closed_lower: bool, closed_upper: bool) -> bool:
    is_point = lower == upper and closed_lower and closed_upper
    return lower < upper or is_point


def _both(one: Constraint, other: Constraint) -> Constraint | None:
    """What lies in two pieces; None where nothing does."""
    if isinstance(one, Values) and isinstance(other, Values):
        shared = one.values & other.values
        return Values(shared) if shared else None
    if isinstance(one, Values) or isinstance(other, Values):
        raise TypeError(f"a column has intervals or values, got {one} and {other}")
    # Of equal ends the one counts that is without itself.
    lower, open_lower = max(
        (one.lower, not one.closed_lower), (other.lower, not other.closed_lower)
    )
    upper, closed_upper = min((one.upper, one.closed_upper), (other.upper, other.closed_upper))
    if not _is_interval(lower, upper, not open_lower, closed_upper):
        return None
    return Interval(lower, upper, not open_lower, closed_upper)


def _touch(one: Interval, other: Interval) -> bool:
    """Whether nothing lies between an interval and one that begins no earlier."""
    if other.lower == one.upper:
        return one.closed_upper or other.closed_lower
    return other.lower < one.upper


def _joined(one: Interval, other: Interval) -> Interval:
    upper, closed_upper = max((one.upper, one.closed_upper), (other.upper, other.closed_upper))
    return Interval(one.lower, upper, one.closed_lower, closed_upper)
