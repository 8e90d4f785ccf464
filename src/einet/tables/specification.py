"""What a user says of a column, where it is not to be read off the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

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
    "bins",
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
            * ``"bins"``: numbers, dates or times with a density that is constant within bins, for
              columns that no smooth density fits: with sharp edges, gaps, or many narrow peaks;
            * ``"categories"``: values without an order, ``"ordered"`` with one;
            * ``"boolean"``: two values, True and False;
            * ``"time"``: dates, times of day or durations;
            * ``"constant"``: one value, ``"identifier"``: a name of the row; of neither
              there is anything to learn.

        lower, upper: The smallest and largest possible number.
        spikes: Numbers that are states of their own.
        categories: All values that are possible, in their order.
        decimals: To how many decimals numbers are rounded.
        bins: How many bins a column of kind ``"bins"`` has, of about as many rows each: twice the
            cube root of the rows by default, at most 64, and fewer where numbers repeat a lot.
            They end at the smallest and largest number of the data, unless ``lower`` or ``upper``
            say otherwise; beyond, the density is 0. Or the edges of all bins, ascending: each is
            the smallest number of a bin, and the last one the largest number of all.

    Example:
        >>> Column("integer", lower=0, upper=120).lower
        0
        >>> import pandas
        >>> from einet import Table
        >>> frame = pandas.DataFrame({"age": range(18, 78), "paid": [9.5, 9.75, 20.0, 22.5] * 15})
        >>> Table.of(frame, columns={"age": "bins", "paid": Column("bins", bins=[5, 15, 25])})
        Table of 2 columns, 2 variables
          age: 8 bins of integers, from 18 to 77
          paid: 2 bins of numbers in steps of 0.01, from 5 to 25
    """

    kind: str = "automatic"
    lower: float | int | None = None
    upper: float | int | None = None
    spikes: Sequence[float | int] | None = None
    categories: Sequence[Any] | None = None
    decimals: int | None = None
    bins: int | Sequence[Any] | np.ndarray | None = None

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
        self._check_bins()
        if self.kind in ("categories", "ordered", "boolean", "constant", "identifier"):
            given = [name for name in ("lower", "upper", "spikes", "decimals")
                     if getattr(self, name) is not None]  # fmt: skip
            if given:
                raise ValueError(f"{given[0]} is for columns of numbers, but kind is {self.kind!r}")

    def _check_bins(self) -> None:
        if self.kind != "bins":
            if self.bins is not None:
                raise ValueError(f"bins is for columns of kind 'bins', but kind is {self.kind!r}")
            return
        for name in ("spikes", "categories"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} cannot be given for a column of kind 'bins'")
        if isinstance(self.bins, np.ndarray):
            # Arrays do not compare as a whole.
            object.__setattr__(self, "bins", list(self.bins))
        if isinstance(self.bins, int) or self.bins is None:
            if self.bins is not None and (isinstance(self.bins, bool) or self.bins < 1):
                raise ValueError(f"bins must be a positive number, or edges, got {self.bins!r}")
            return
        if isinstance(self.bins, str) or not isinstance(self.bins, Sequence):
            raise TypeError(f"bins must be a number of bins, or edges, got {shown(self.bins)}")
        if len(self.bins) < 2:
            raise ValueError(f"bins must have two edges or more, got {shown(self.bins)}")
        given = [name for name in ("lower", "upper") if getattr(self, name) is not None]
        if given:
            raise ValueError(f"{given[0]} cannot be given beside edges, whose ends are the bounds")


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
