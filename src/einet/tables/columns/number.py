"""Columns of numbers: continuous, positive, bounded, or on a grid such as the integers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from einet.data.events import between
from einet.families import ExponentialFamily, Gaussian
from einet.tables.columns.base import Alternative, Coding, register
from einet.tables.constraints import Constraint, Interval
from einet.tables.monotone import MonotoneMap

__all__ = ["Number", "grid_points"]

# Beyond so many standard deviations of the scale nothing is told apart any more.
_FARTHEST = 1e6


@register
class Number(Coding):
    r"""A column of numbers x as one Gaussian variable z = f(x), with f a smooth increasing map.

    The density of x is reported: :math:`\log p(z) + \log f'(x)`. Where cells lie on a grid of
    :math:`10^{-d}` (integers have d = 0) x is spread evenly over its grid interval for learning,
    the density is that of the spread number at the middle of the interval, and what is decoded is
    rounded to the grid. For integers it is their probability, up to how far the density bends
    within the interval; :meth:`alternatives` asks for the interval itself, exactly.

    Cells beyond the bounds are strange: their density is 0, and evidence takes the nearest number
    that is possible. Numbers that are possible, but lie beyond all that were seen, have a density.

    Args:
        scale: The map f, with the bounds of the support; of a grid these are half a step outside.
        decimals: d; negative for tens and hundreds, None where there is no grid.
        seen: The smallest and the largest number that were seen; None where that is not known.

    Example:
        >>> years = Number(MonotoneMap.fit(np.arange(17.0, 90.0), 16.5, 90.5), decimals=0)
        >>> z = years.encode(np.array([17.0, 40.0, np.nan]))
        >>> years.decode(z)
        array([17., 40., nan])
        >>> years.decode(np.array([[-50.0], [50.0]]))
        array([17., 90.])
    """

    kind: ClassVar = "number"

    def __init__(
        self,
        scale: MonotoneMap,
        decimals: int | None = None,
        seen: tuple[float, float] | None = None,
    ) -> None:
        self.scale, self.decimals, self.seen = scale, decimals, seen
        half = self.step / 2
        #: The smallest and the largest number that a cell can hold; infinite without a bound.
        self.smallest, self.largest = scale.lower + half, scale.upper - half
        if decimals is not None:
            self.smallest, self.largest = (
                float(np.round(end, decimals)) if math.isfinite(end) else end
                for end in (self.smallest, self.largest)
            )

    @classmethod
    def fit(
        cls,
        cells: Float[np.ndarray, " rows"],
        lower: float = -math.inf,
        upper: float = math.inf,
        decimals: int | None = None,
    ) -> Number:
        """The coding of known cells with these smallest and largest numbers."""
        half = 0.0 if decimals is None else 10.0**-decimals / 2
        values = np.sort(cells)
        if half:
            # Cells of the same number are spread over its interval in equal distances.
            starts = np.searchsorted(values, values)
            count = np.searchsorted(values, values, side="right") - starts
            share = (np.arange(len(values)) - starts + 0.5) / count
            values = values + half * (2 * share - 1)
        scale = MonotoneMap.fit(values, lower - half, upper + half)
        return cls(scale, decimals, (float(cells.min()), float(cells.max())))

    @property
    def step(self) -> float:
        """The distance of neighbours on the grid; 0 without one."""
        return 0.0 if self.decimals is None else 10.0**-self.decimals

    def families(self) -> list[ExponentialFamily]:
        return [Gaussian()]

    def encode(
        self, cells: np.ndarray, jitter: np.random.Generator | None = None
    ) -> Float[np.ndarray, "rows 1"]:
        x = self._inside(cells)
        if jitter is not None and self.decimals is not None:
            x = x + self.step * (jitter.random(len(x)) - 0.5)
        # At an end that no number lies beyond, the scale would be infinite.
        return np.clip(self.scale.forward(x), -_FARTHEST, _FARTHEST).reshape(-1, 1)

    def decode(self, z: Float[np.ndarray, "rows 1"]) -> np.ndarray:
        x = self.scale.inverse(z[:, 0])
        if self.decimals is not None:
            x = np.round(x, self.decimals)
        # Rounding up to a bound, too, is of no harm.
        largest = np.finfo(np.float64).max
        return np.clip(x, max(self.smallest, -largest), min(self.largest, largest)) + 0.0

    def within_seen(self, z: Float[np.ndarray, "rows 1"]) -> Float[np.ndarray, "rows 1"]:
        if self.seen is None:
            return z
        smallest, largest = self.encode(np.array(self.seen))[:, 0]
        return np.clip(z, smallest, largest)

    def log_slope(self, cells: np.ndarray) -> Float[np.ndarray, " rows"]:
        slope = self.scale.log_slope(self._inside(cells))
        slope = np.where(self.is_strange(cells), -np.inf, slope)
        return np.where(np.isnan(cells), 0.0, slope)

    def is_strange(self, cells: np.ndarray) -> Bool[np.ndarray, " rows"]:
        return (cells < self.smallest) | (cells > self.largest)

    def levels(self, z: Float[np.ndarray, "rows 1"], count: int) -> Float[np.ndarray, " rows"]:
        value = z[:, 0]
        known = ~np.isnan(value)
        if not known.any():
            return value
        edges = np.unique(np.quantile(value[known], np.arange(1, count) / count))
        return np.where(known, np.searchsorted(edges, value).astype(np.float64), np.nan)

    def alternatives(self, pieces: Sequence[Constraint]) -> list[Alternative]:
        events = []
        for piece in pieces:
            if not isinstance(piece, Interval):
                raise TypeError(f"a column of numbers is constrained by intervals, got {piece}")
            ends = self._ends(piece)
            if ends is not None:
                events.append({0: between(*ends)})
            elif self.decimals is None and piece.is_point and self._holds(piece.lower):
                events.append({0: float(self.scale.forward(np.array([float(piece.lower)]))[0])})
        return events

    def _holds(self, number: float | int) -> bool:
        return self.smallest < number < self.largest

    def _ends(self, piece: Interval) -> tuple[float, float] | None:
        """The ends of an interval on the model's scale; None where no cell can be in it."""
        lower, upper = piece.lower, piece.upper
        if self.decimals is not None:
            cells = grid_points(piece, self.step)
            if cells is None:
                return None
            lower, upper = (cells[0] - 0.5) * self.step, (cells[1] + 0.5) * self.step
        lower, upper = max(lower, self.scale.lower), min(upper, self.scale.upper)
        if lower >= upper:
            return None
        z = self.scale.forward(np.array([lower, upper], dtype=np.float64))
        return float(z[0]), float(z[1])

    def _inside(self, cells: np.ndarray) -> np.ndarray:
        return np.clip(cells, self.smallest, self.largest)

    def describe(self) -> str:
        word = "continuous" if self.decimals is None else f"in steps of {self.step:g}"
        word = "integers" if self.decimals == 0 else word
        ends = [end for end in (self.smallest, self.largest) if math.isfinite(end)]
        if len(ends) == 2:
            return f"{word}, from {ends[0]:g} to {ends[1]:g}"
        if ends:
            side = "least" if math.isfinite(self.smallest) else "most"
            return f"{word}, at {side} {ends[0]:g}"
        return word

    def to_dict(self) -> dict[str, Any]:
        plain = {"kind": self.kind, "scale": self.scale.to_dict(), "decimals": self.decimals}
        return plain if self.seen is None else {**plain, "seen": list(self.seen)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Number:
        decimals = plain["decimals"]
        if decimals is not None and (type(decimals) is not int or not -300 < decimals < 300):
            raise ValueError(f"decimals must be a small integer or None, got {decimals!r}")
        seen = plain.get("seen")
        if seen is not None:
            smallest, largest = (float(end) for end in seen)
            if not -math.inf < smallest <= largest < math.inf:
                raise ValueError(f"seen must be two finite numbers that ascend, got {seen!r}")
            seen = (smallest, largest)
        return cls(MonotoneMap.from_dict(plain["scale"]), decimals, seen)


def grid_points(piece: Interval, step: float) -> tuple[float, float] | None:
    """The first and last point of a grid in an interval, counted in steps; None without any."""
    # 0.3 is three tenths but for rounding: what is nearly on the grid is on it.
    lower, upper = (
        round(end / step) if math.isfinite(end) and abs(end / step - round(end / step)) < 1e-6
        else end / step
        for end in (piece.lower, piece.upper)
    )  # fmt: skip
    if lower == upper and not (piece.closed_lower and piece.closed_upper):
        return None
    cells = Interval(lower, upper, piece.closed_lower, piece.closed_upper).of_integers()
    return None if cells is None else (float(cells.lower), float(cells.upper))
