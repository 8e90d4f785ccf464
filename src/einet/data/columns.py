"""The names of a table's columns: checked, shown, and put in the order that a model knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from einet._checks import shown

__all__ = ["as_columns", "names_of", "order_of"]

# So many names, of so many characters, does an error show.
_MOST_SHOWN, _MOST_CHARACTERS = 5, 60


def names_of(labels: Sequence[Any], name: str) -> tuple[tuple[str, ...] | None, list[int] | None]:
    """The names of a table's columns, and in which order to take these.

    Numbers 0, 1, … are what a table has that was given no names. Such columns go by position, as
    those of an array do, and are put in the order of their numbers. Other labels that are no text
    are known by how they are written.

    Args:
        labels: The labels of the columns.
        name: What errors call the table.

    Example:
        >>> names_of(["age", 1950], "x"), names_of([2, 0, 1], "x")
        ((('age', '1950'), None), (None, [1, 2, 0]))
    """
    if all(isinstance(label, int) and not isinstance(label, bool) for label in labels):
        places = list(range(len(labels)))
        if list(labels) == places:
            return None, None
        if sorted(labels) == places:
            return None, sorted(places, key=labels.__getitem__)
    names = tuple(map(str, labels))
    twice = _twice(names)
    if twice:
        raise ValueError(f"{name} must have distinct columns, got {_shown(twice)} more than once")
    return names, None


def as_columns(columns: Any, num_variables: int) -> tuple[str, ...]:
    """Names that a user gave for the variables of a model: distinct, and one for each.

    Example:
        >>> as_columns(["age", "height"], num_variables=2)
        ('age', 'height')
    """
    named = isinstance(columns, Iterable) and not isinstance(columns, str | bytes | Tensor)
    names = tuple(columns) if named else ()
    if not named or not all(isinstance(each, str) for each in names):
        raise TypeError(f"columns must be a sequence of strings or None, got {shown(columns)}")
    if len(names) != num_variables:
        raise ValueError(
            f"columns must hold one name for each of {num_variables} variables, got {len(names)}"
        )
    twice = _twice(names)
    if twice:
        raise ValueError(f"columns must be distinct, got {_shown(twice)} more than once")
    return tuple(map(str, names))


def order_of(given: tuple[str, ...], wanted: tuple[str, ...], name: str) -> list[int] | None:
    """Where each wanted column is among those given; None where each is in its place.

    Args:
        given: The columns of a table.
        wanted: Those of a model.
        name: What errors call the table.

    Example:
        >>> order_of(("b", "a"), ("a", "b"), "x")
        [1, 0]
    """
    if given == wanted:
        return None
    place = {column: number for number, column in enumerate(given)}
    missing = [column for column in wanted if column not in place]
    known = set(wanted)
    unknown = [column for column in given if column not in known]
    if missing or unknown:
        faults = [
            f"{_shown(columns)} {what}"
            for columns, what in ((missing, "missing"), (unknown, "unknown"))
            if columns
        ]
        raise ValueError(
            f"{name} must have the {len(wanted)} columns of the model (model.columns), "
            f"got {' and '.join(faults)}"
        )
    return [place[column] for column in wanted]


def _twice(names: Iterable[str]) -> list[str]:
    return [column for column, count in Counter(names).items() if count > 1]


def _shown(columns: Sequence[str]) -> str:
    """Some names, for an error that can be read."""
    some = [repr(column)[:_MOST_CHARACTERS] for column in columns[:_MOST_SHOWN]]
    more = len(columns) - len(some)
    return ", ".join(some) + (f" and {more} more" if more else "")
