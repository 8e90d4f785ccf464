"""Columns that a model learns nothing from: of one value, or of names for rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from einet.families import ExponentialFamily
from einet.tables.columns.base import Alternative, Coding, register
from einet.tables.constraints import Constraint, covers

__all__ = ["Constant", "Identifier"]


class _Nothing(Coding):
    """A column without variables."""

    def families(self) -> list[ExponentialFamily]:
        return []

    def encode(
        self, cells: np.ndarray, jitter: np.random.Generator | None = None
    ) -> Float[np.ndarray, "rows 0"]:
        return np.empty((len(cells), 0))

    def levels(self, z: Float[np.ndarray, "rows 0"], count: int) -> Float[np.ndarray, " rows"]:
        return np.zeros(len(z))


@register
class Constant(_Nothing):
    """A column that held one value only; what is decoded has it in every row.

    Args:
        value: A number (float), another value, or None for a column without any.

    Example:
        >>> Constant("b").decode(np.empty((2, 0))).tolist()
        ['b', 'b']
    """

    kind: ClassVar = "constant"

    def __init__(self, value: Any) -> None:
        if value is not None and type(value) not in (str, bool, int, float):
            raise TypeError(f"value must be text, a number or a flag, got {value!r}")
        self.value = value
        self.is_number = type(value) is float

    def decode(self, z: Float[np.ndarray, "rows 0"]) -> np.ndarray:
        kind = np.float64 if self.is_number else object
        return np.full(len(z), self.value, dtype=kind)

    def is_strange(self, cells: np.ndarray) -> Bool[np.ndarray, " rows"]:
        if self.is_number:
            return ~np.isnan(cells) & (cells != self.value)
        return np.array([cell is not None and cell != self.value for cell in cells], dtype=bool)

    def alternatives(self, pieces: Sequence[Constraint]) -> list[Alternative]:
        return [{}] if self.value is not None and covers(pieces, self.value) else []

    def describe(self) -> str:
        return "no value at all" if self.value is None else f"always {self.value}"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "value": self.value}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Constant:
        return cls(plain["value"])


@register
class Identifier(_Nothing):
    """A column of names for rows, which is left out; what is decoded does not have it."""

    kind: ClassVar = "identifier"
    is_number = False

    def decode(self, z: Float[np.ndarray, "rows 0"]) -> np.ndarray:
        return np.full(len(z), None, dtype=object)

    def is_strange(self, cells: np.ndarray) -> Bool[np.ndarray, " rows"]:
        return np.zeros(len(cells), dtype=bool)

    def alternatives(self, pieces: Sequence[Constraint]) -> list[Alternative]:
        raise ValueError("the column was left out as an identifier: the model knows nothing of it")

    def describe(self) -> str:
        return "an identifier, left out"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Identifier:
        return cls()
