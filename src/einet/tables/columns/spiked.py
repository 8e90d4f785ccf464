"""Columns of numbers some of which are states of their own, such as a gain of 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from einet.data.events import among
from einet.families import Categorical, ExponentialFamily
from einet.tables.columns.base import Alternative, Coding, register
from einet.tables.columns.number import Number
from einet.tables.constraints import Constraint, covers

__all__ = ["Spiked"]


@register
class Spiked(Coding):
    r"""A column of numbers with spikes :math:`s_1, \dots, s_n`: two variables.

    The first says which spike a cell is, or 0 for none. The second is the number where there is no
    spike, and missing where there is one, so that it is integrated out:

    .. math:: p(x = s_j) = P(k = j), \qquad p(x) = P(k = 0)\, p(z \mid k = 0)\, f'(x)

    Args:
        spikes: The spikes, ascending.
        number: The coding of all other numbers.

    Example:
        >>> rest = Number.fit(np.random.default_rng(0).gamma(2.0, 500.0, 200), lower=0.0)
        >>> gains = Spiked([0.0], rest)
        >>> z = gains.encode(np.array([0.0, 700.0, np.nan]))
        >>> z[:, 0], np.isnan(z[:, 1])
        (array([ 1.,  0., nan]), array([ True, False,  True]))
        >>> gains.decode(z)
        array([  0., 700.,  nan])
    """

    kind: ClassVar = "spiked"

    def __init__(self, spikes: Sequence[float], number: Number) -> None:
        self.spikes = np.array(spikes, dtype=np.float64)
        self.number = number
        if not len(self.spikes) or not np.isfinite(self.spikes).all():
            raise ValueError(f"spikes must be finite numbers, at least one, got {list(spikes)}")
        if bool((np.diff(self.spikes) <= 0).any()):
            raise ValueError(f"spikes must ascend, got {list(spikes)}")

    def families(self) -> list[ExponentialFamily]:
        return [Categorical(len(self.spikes) + 1), *self.number.families()]

    def encode(
        self, cells: np.ndarray, jitter: np.random.Generator | None = None
    ) -> Float[np.ndarray, "rows 2"]:
        which = self._which(cells)
        value = self.number.encode(np.where(which > 0, np.nan, cells), jitter)[:, 0]
        return np.stack([np.where(np.isnan(cells), np.nan, which), value], 1)

    def decode(self, z: Float[np.ndarray, "rows 2"]) -> np.ndarray:
        which = np.where(np.isnan(z[:, 0]), 0, z[:, 0]).astype(np.int64)
        value = self.number.decode(z[:, 1:])
        value = np.where(np.isnan(z[:, 0]), np.nan, value)
        return np.where(which > 0, self.spikes[np.maximum(which - 1, 0)], value)

    def within_seen(self, z: Float[np.ndarray, "rows 2"]) -> Float[np.ndarray, "rows 2"]:
        return np.concatenate([z[:, :1], self.number.within_seen(z[:, 1:])], 1)

    def log_slope(self, cells: np.ndarray) -> Float[np.ndarray, " rows"]:
        return self.number.log_slope(np.where(self._which(cells) > 0, np.nan, cells))

    def is_strange(self, cells: np.ndarray) -> Bool[np.ndarray, " rows"]:
        return self.number.is_strange(cells) & (self._which(cells) == 0)

    def levels(self, z: Float[np.ndarray, "rows 2"], count: int) -> Float[np.ndarray, " rows"]:
        spikes = len(self.spikes)
        rest = self.number.levels(z[:, 1:], max(2, count - spikes))
        # Two spikes may share a level where there are more of them than levels.
        return np.where(z[:, 0] > 0, np.minimum(z[:, 0] - 1, count - 1), rest + spikes)

    def alternatives(self, pieces: Sequence[Constraint]) -> list[Alternative]:
        hit = [n + 1 for n, spike in enumerate(self.spikes.tolist()) if covers(pieces, spike)]
        events: list[Alternative] = [{0: among(hit)}] if hit else []
        for alternative in self.number.alternatives(pieces):
            events.append({0: among([0]), 1: alternative[0]})
        return events

    def _which(self, cells: np.ndarray) -> np.ndarray:
        """The number of each cell's spike, 0 for none."""
        place = np.searchsorted(self.spikes, cells)
        place = np.minimum(place, len(self.spikes) - 1)
        return np.where(self.spikes[place] == cells, place + 1, 0)

    def describe(self) -> str:
        shown = ", ".join(f"{spike:g}" for spike in self.spikes[:4])
        more = ", …" if len(self.spikes) > 4 else ""
        return f"{self.number.describe()}; often {shown}{more}"

    def to_dict(self) -> dict[str, Any]:
        number = self.number.to_dict()
        return {"kind": self.kind, "spikes": self.spikes.tolist(), "number": number}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Spiked:
        return cls(plain["spikes"], Number.from_dict(plain["number"]))
