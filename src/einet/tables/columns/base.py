"""What a column of a table is to a model: one or two variables, or none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Bool, Float

from einet.families import ExponentialFamily
from einet.tables.constraints import Constraint

__all__ = ["CODINGS", "Alternative", "Coding", "coding_from_dict", "register"]

#: Events of a column's variables, by their number within the column, that hold together. A plain
#: number is a point of a continuous variable: it has a density, but no probability.
Alternative = dict[int, Any]

Kind = TypeVar("Kind", bound="Coding")

#: The kinds of codings by the names that files know them under.
CODINGS: dict[str, type[Coding]] = {}


def register(coding: type[Kind]) -> type[Kind]:
    """Let files tell of a kind of coding by its name."""
    CODINGS[coding.kind] = coding
    return coding


class Coding(ABC):
    r"""How the cells of one column become values of a model's variables, and come back.

    With x the cell and z its variables, the density of the column is

    .. math:: \log p(x) = \log p(z) + \log \left|\frac{dz}{dx}\right|

    where the second term is 0 for what is counted rather than measured.

    Deriving from it: ``kind`` is the name in files; cells come as numbers (float64, NaN where
    missing) if :attr:`is_number`, and otherwise as Python objects (None where missing). A missing
    cell leaves all its variables missing.
    """

    kind: ClassVar[str]
    #: Whether cells are numbers; objects otherwise.
    is_number: bool = True

    @abstractmethod
    def families(self) -> list[ExponentialFamily]:
        """The family of each variable."""

    @abstractmethod
    def encode(
        self, cells: np.ndarray, jitter: np.random.Generator | None = None
    ) -> Float[np.ndarray, "rows variables"]:
        """The variables' values; NaN where missing, or where there is no value for the cell.

        Args:
            cells: The column.
            jitter: Where given, cells on a grid are spread evenly over their grid interval: what
                a continuous variable has to learn from.
        """

    @abstractmethod
    def decode(self, z: Float[np.ndarray, "rows variables"]) -> np.ndarray:
        """The cells of variables' values; missing where these are NaN."""

    def within_seen(
        self, z: Float[np.ndarray, "rows variables"]
    ) -> Float[np.ndarray, "rows variables"]:
        """Draws with numbers beyond all that were seen taken for the outermost of these.

        A few values do not tell how a tail goes on: its draws are numbers that nobody ever saw.
        """
        return z

    def log_slope(self, cells: np.ndarray) -> Float[np.ndarray, " rows"]:
        """log |dz/dx| of every cell; 0 where it is missing or counted."""
        return np.zeros(len(cells))

    @abstractmethod
    def is_strange(self, cells: np.ndarray) -> Bool[np.ndarray, " rows"]:
        """Which cells are none that the column can hold."""

    @abstractmethod
    def levels(
        self, z: Float[np.ndarray, "rows variables"], count: int
    ) -> Float[np.ndarray, " rows"]:
        """The column in about so many levels 0, 1, …, to compare it with others; NaN if missing."""

    @abstractmethod
    def alternatives(self, pieces: Sequence[Constraint]) -> list[Alternative]:
        """What pieces of a constraint mean to the variables: events, of which one at most holds."""

    @property
    def num_variables(self) -> int:
        """How many variables the column is to a model."""
        return len(self.families())

    @abstractmethod
    def describe(self) -> str:
        """The column in a few words."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The coding in plain values, without its kind."""

    @classmethod
    @abstractmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Coding:
        """The coding that :meth:`to_dict` told of, checked."""


def coding_from_dict(plain: Mapping[str, Any]) -> Coding:
    """A coding of any kind, as a file tells of it."""
    kind = plain.get("kind")
    if not isinstance(kind, str) or kind not in CODINGS:
        raise ValueError(f"kind of a column must be one of {sorted(CODINGS)}, got {kind!r}")
    return CODINGS[kind].from_dict(plain)
