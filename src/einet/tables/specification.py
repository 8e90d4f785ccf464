"""What a user says of a column, where it is not to be read off the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from einet._checks import check_choice, shown

__all__ = ["Column", "Kind", "as_specification"]

#: The kinds of columns; see :class:`Column`.
Kind: TypeAlias = Literal[
    "automatic",
    "continuous",
    "positive",
    "bounded",
    "integer",
    "spiked",
    "states",
    "categories",
    "ordered",
    "boolean",
    "time",
    "constant",
    "identifier",
]


@dataclass(frozen=True)
class Column:
    """What a column of a table is: its kind, and what is known of it for certain.

    What is left out is read off the data.

    Args:
        kind: One of

            * ``"automatic"``: whatever the data look like;
            * ``"continuous"``: a number of any size;
            * ``"positive"``: a number above 0, or 0 as a state of its own;
            * ``"bounded"``: a number between the smallest and the largest of the data;
            * ``"integer"``: whole numbers, as a smooth distribution that is rounded;
            * ``"spiked"``: numbers of which some are states of their own;
            * ``"states"``: numbers each of which is a state of its own;
            * ``"categories"``: values without an order, ``"ordered"`` with one;
            * ``"boolean"``: two values, True and False;
            * ``"time"``: dates, times of day or durations;
            * ``"constant"``: one value, ``"identifier"``: a name of the row; of neither
              there is anything to learn.

        lower, upper: The smallest and largest possible number.
        spikes: Numbers that are states of their own.
        categories: All values that are possible, in their order.
        decimals: To how many decimals numbers are rounded.

    Example:
        >>> Column("integer", lower=0, upper=120)
        Column(kind='integer', lower=0, upper=120, spikes=None, categories=None, decimals=None)
    """

    kind: str = "automatic"
    lower: float | int | None = None
    upper: float | int | None = None
    spikes: Sequence[float | int] | None = None
    categories: Sequence[Any] | None = None
    decimals: int | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        for name in ("lower", "upper"):
            end = getattr(self, name)
            if end is not None and (isinstance(end, bool) or math.isnan(end)):
                raise ValueError(f"{name} must be a number, got {shown(end)}")
        if self.lower is not None and self.upper is not None and not self.lower < self.upper:
            raise ValueError(f"lower must be below upper, got {self.lower} and {self.upper}")
        if self.categories is not None and not len(self.categories):
            raise ValueError("categories must hold one value at least, got none")
        if self.kind in ("categories", "ordered", "boolean", "constant", "identifier"):
            given = [name for name in ("lower", "upper", "spikes", "decimals")
                     if getattr(self, name) is not None]  # fmt: skip
            if given:
                raise ValueError(f"{given[0]} is for columns of numbers, but kind is {self.kind!r}")


def as_specification(column: Any, given: Any) -> Column:
    """What a user said of a column, by the name of its kind or in full."""
    if isinstance(given, Column):
        return given
    if isinstance(given, str):
        try:
            return Column(given)
        except ValueError as error:
            raise ValueError(f"columns[{column!r}]: {error}") from error
    raise TypeError(
        f"columns[{column!r}] must be the name of a kind or an einet.tables.Column, got "
        f"{shown(given)}"
    )
