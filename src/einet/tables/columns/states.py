"""Columns with finitely many values: categories, flags, and numbers that repeat a lot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from einet.data.events import among
from einet.families import Categorical, ExponentialFamily
from einet.tables.columns.base import Alternative, Coding, register
from einet.tables.constraints import Constraint, covers

__all__ = ["States"]


@register
class States(Coding):
    r"""A column whose cells are one of C values; variable k is the number of the value.

    What is reported of it are probabilities, not densities. A number that is none of the values is
    taken for the nearest of them, and any other value for missing; :meth:`is_strange` tells.

    Args:
        values: The values in their order: all numbers, or all others.
        ordered: Whether the order says something. Numbers always have one.
        as_numbers: Whether values that are all numbers count as such, as they do by default. Where
            they are names of categories, nothing lies between them, and they have no mean.

    Example:
        >>> sizes = States(["small", "large"], ordered=True)
        >>> sizes.encode(np.array(["large", None, "huge"], dtype=object))[:, 0]
        array([ 1., nan, nan])
        >>> sizes.decode(np.array([[0.0], [1.0]])).tolist()
        ['small', 'large']
        >>> States([1.0, 2.0, 4.0]).encode(np.array([2.0, 3.9]))[:, 0]
        array([1., 2.])
    """

    kind: ClassVar = "states"

    def __init__(
        self, values: Sequence[Any], ordered: bool = False, as_numbers: bool = True
    ) -> None:
        self.values = list(values)
        self._are_floats = all(type(value) is float for value in self.values)
        self.is_number = as_numbers and self._are_floats
        self.ordered = ordered or self.is_number
        allowed = (float,) if self.is_number else (str, bool, int, float)
        for value in self.values:
            if type(value) not in allowed:
                raise TypeError(f"values must be text, numbers or flags, got {value!r}")
        self._number = {value: number for number, value in enumerate(self.values)}
        if not self.values or len(self._number) != len(self.values):
            raise ValueError("values must be different from one another, and at least one")
        if self.is_number and bool((np.diff(self.values) <= 0).any()):
            raise ValueError(f"values that are numbers must ascend, got {self.values}")

    @property
    def has_order(self) -> bool:
        """Whether quantiles say something of the column."""
        return self.ordered

    def families(self) -> list[ExponentialFamily]:
        return [Categorical(len(self.values))]

    def encode(
        self, cells: np.ndarray, jitter: np.random.Generator | None = None
    ) -> Float[np.ndarray, "rows 1"]:
        if not self.is_number:
            numbers = [self._number.get(cell, np.nan) for cell in cells]
            return np.array(numbers, dtype=np.float64).reshape(-1, 1)
        values = np.array(self.values)
        # The place among the middles between neighbours is the number of the nearest.
        nearest = np.searchsorted((values[1:] + values[:-1]) / 2, cells).astype(np.float64)
        return np.where(np.isnan(cells), np.nan, nearest).reshape(-1, 1)

    def decode(self, z: Float[np.ndarray, "rows 1"]) -> np.ndarray:
        missing = np.isnan(z[:, 0])
        numbers = np.where(missing, 0, z[:, 0]).astype(np.int64)
        if self.is_number:
            return np.where(missing, np.nan, np.array(self.values)[numbers])
        values = np.empty(len(self.values), dtype=object)
        values[:] = self.values
        cells = values[numbers]
        cells[missing] = None
        return cells

    def is_strange(self, cells: np.ndarray) -> Bool[np.ndarray, " rows"]:
        if self.is_number:
            values = np.array(self.values)
            nearest = values[np.minimum(np.searchsorted(values, cells), len(values) - 1)]
            return ~np.isnan(cells) & (cells != nearest)
        strange = [cell is not None and cell not in self._number for cell in cells]
        return np.array(strange, dtype=bool)

    def levels(self, z: Float[np.ndarray, "rows 1"], count: int) -> Float[np.ndarray, " rows"]:
        number = z[:, 0]
        if len(self.values) <= count:
            return number
        known = ~np.isnan(number)
        sizes = np.bincount(number[known].astype(np.int64), minlength=len(self.values))
        level = np.empty(len(self.values))
        if self.ordered:
            # Neighbours share a level until it has its part of the rows.
            middle = (np.cumsum(sizes) - sizes / 2) / max(1, sizes.sum())
            level[:] = np.minimum(np.floor(middle * count), count - 1)
        else:
            # The rarest share the last level.
            level[np.argsort(-sizes, kind="stable")] = np.minimum(np.arange(len(sizes)), count - 1)
        answer = np.full(len(number), np.nan)
        answer[known] = level[number[known].astype(np.int64)]
        return answer

    def alternatives(self, pieces: Sequence[Constraint]) -> list[Alternative]:
        numbers = [number for number, value in enumerate(self.values) if covers(pieces, value)]
        return [{0: among(numbers)}] if numbers else []

    def describe(self) -> str:
        shown = ", ".join(
            f"{value:g}" if self.is_number else str(value) for value in self.values[:4]
        )
        more = ", …" if len(self.values) > 4 else ""
        word = (
            "numbers" if self.is_number else "ordered categories" if self.ordered else "categories"
        )
        return f"{len(self.values)} {word}: {shown}{more}"

    def to_dict(self) -> dict[str, Any]:
        plain = {"kind": self.kind, "values": self.values, "ordered": self.ordered}
        return {**plain, "as_numbers": False} if self._are_floats and not self.is_number else plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> States:
        return cls(plain["values"], bool(plain["ordered"]), bool(plain.get("as_numbers", True)))
