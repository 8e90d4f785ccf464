"""Columns of numbers in bins: a density that is constant within each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float

from einet.families import Categorical, ExponentialFamily
from einet.tables.columns.base import Alternative, Coding, register
from einet.tables.columns.bin_edges import even_edges, outer_edges
from einet.tables.columns.bin_events import Covered, Segments, Spot
from einet.tables.columns.number import grid_points
from einet.tables.constraints import Constraint, Interval

__all__ = ["Binned"]


@register
class Binned(Coding):
    r"""A column of numbers x as one of B bins, :math:`e_k \le x < e_{k+1}`; the last has both ends.

    Within a bin all numbers are alike:

    .. math:: \log p(x) = \log P(k) - \log (e_{k+1} - e_k)

    Where cells lie on a grid of :math:`10^{-d}` (integers have d = 0) edges lie half a step beside
    its points, so that each bin holds whole grid intervals. The density is that of the number
    spread evenly over its grid interval, as of :class:`Number`; for integers it is their
    probability.

    An interval that cuts a bin is soft evidence: the bin counts by the share that lies in it.
    Numbers beyond the edges are strange: their density is 0, and evidence takes the nearest number
    that is possible.

    Args:
        edges: :math:`e_0 < \dots < e_B`.
        decimals: d; negative for tens and hundreds, None where there is no grid.

    Example:
        >>> ages = Binned([16.5, 29.5, 64.5, 90.5], decimals=0)
        >>> ages.encode(np.array([17.0, 40.0, np.nan]))[:, 0]
        array([ 0.,  1., nan])
        >>> ages.decode(np.array([[0.0], [1.0]]))  # the middles of bins
        array([23., 47.])
        >>> np.exp(ages.log_slope(np.array([40.0])))  # one of 35 ages
        array([0.02857143])
    """

    kind: ClassVar = "bins"
    #: Bins end where their column does: nothing more is known of what was seen.
    seen: ClassVar[None] = None

    def __init__(self, edges: Sequence[float | int], decimals: int | None = None) -> None:
        self.edges = np.array(edges, dtype=np.float64)
        self.decimals = decimals
        if self.edges.ndim != 1 or len(self.edges) < 2 or not np.isfinite(self.edges).all():
            raise ValueError(f"edges must be two finite numbers or more, got {list(edges)}")
        if bool((np.diff(self.edges) <= 0).any()):
            raise ValueError(f"edges must ascend, got {list(edges)}")
        half = self.step / 2
        self.smallest, self.largest = float(self.edges[0] + half), float(self.edges[-1] - half)
        if decimals is not None:
            steps = self.edges / self.step - 0.5
            if bool((np.abs(steps - np.round(steps)) > 1e-6).any()):
                raise ValueError(
                    f"edges must lie half a step of {self.step:g} beside the grid, got "
                    f"{list(edges)}"
                )
            self.smallest, self.largest = (
                float(np.round(end, decimals)) for end in (self.smallest, self.largest)
            )
        #: How wide each bin is.
        self.widths = np.diff(self.edges)

    @classmethod
    def fit(
        cls,
        cells: Float[np.ndarray, " rows"],
        count: int,
        lower: float,
        upper: float,
        decimals: int | None = None,
    ) -> Binned:
        """Bins of about as many known cells each, none of them empty.

        Args:
            cells: The known cells.
            count: How many bins there are at most; fewer where cells repeat a lot.
            lower, upper: The smallest and the largest number.
            decimals: To how many decimals the cells are rounded, if they are.
        """
        return cls(even_edges(cells, count, lower, upper, decimals), decimals)

    @classmethod
    def between(cls, edges: Sequence[float | int], decimals: int | None = None) -> Binned:
        """Bins with given edges, each of which is the smallest number of a bin, or the last of all.

        Args:
            edges: The edges, ascending.
            decimals: To how many decimals the cells are rounded, if they are.

        Example:
            >>> Binned.between([0, 18, 65], decimals=0).edges
            array([-0.5, 17.5, 65.5])
        """
        return cls(outer_edges(edges, decimals), decimals)

    @property
    def step(self) -> float:
        """The distance of neighbours on the grid; 0 without one."""
        return 0.0 if self.decimals is None else 10.0**-self.decimals

    def families(self) -> list[ExponentialFamily]:
        return [Categorical(len(self.widths))]

    # -- there and back ----------------------------------------------------------------------------

    def encode(
        self, cells: np.ndarray, jitter: np.random.Generator | None = None
    ) -> Float[np.ndarray, "rows 1"]:
        return np.where(np.isnan(cells), np.nan, self._bin(cells)).reshape(-1, 1)

    def decode(self, z: Float[np.ndarray, "rows 1"]) -> np.ndarray:
        """The middle of each bin; on a grid a number of it."""
        missing = np.isnan(z[:, 0])
        bins = np.where(missing, 0, z[:, 0]).astype(np.int64)
        middles = self.middle(self.edges[:-1], self.edges[1:])
        return np.where(missing, np.nan, middles[bins])

    def middle(self, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """The number in the middle of each of some intervals; on a grid the lower of two."""
        if self.decimals is None:
            return lower + (upper - lower) / 2
        first, last = np.round(lower / self.step + 0.5), np.round(upper / self.step - 0.5)
        return self.at_steps(np.floor((first + last) / 2))

    def at_steps(self, steps: np.ndarray) -> np.ndarray:
        """The numbers of a grid, counted in steps from 0."""
        assert self.decimals is not None
        return np.round(steps * self.step, self.decimals) + 0.0

    def kept(self, cells: np.ndarray) -> np.ndarray:
        """Cells as evidence takes them: beyond the bounds, the nearest possible."""
        return np.clip(cells, self.smallest, self.largest)

    def draw(
        self,
        z: Float[np.ndarray, " rows"],
        event: Any,
        generator: np.random.Generator,
    ) -> Float[np.ndarray, " rows"]:
        """Cells within bins, evenly spread over the part that is possible.

        Args:
            z: The numbers of the bins.
            event: What is known of the column: :class:`Covered`, a :class:`Spot`, or anything else
                where bins are possible as a whole.
            generator: Source of what is random.
        """
        if isinstance(event, Spot):
            return np.full(len(z), event.cell)
        lower, upper = np.array(self.segments_of(event)).T
        until = np.concatenate([[0.0], np.cumsum(upper - lower)])
        bins = z.astype(np.int64)
        # On a line of all segments, end to end, each bin has its part.
        low, high = (
            np.clip(ends[:, None] - lower, 0.0, upper - lower).sum(1)[bins]
            for ends in (self.edges[:-1], self.edges[1:])
        )
        at = np.minimum(low + generator.random(len(z)) * (high - low), np.nextafter(high, low))
        which = np.clip(np.searchsorted(until, at, side="right") - 1, 0, len(lower) - 1)
        # Rounding may not lead out of the bin.
        lower = np.maximum(lower[which], self.edges[bins])
        upper = np.minimum(upper[which], self.edges[bins + 1])
        x = np.clip(lower + at - np.maximum(until[which], low), lower, upper)
        if self.decimals is None:
            return x
        first, last = np.round(lower / self.step + 0.5), np.round(upper / self.step - 0.5)
        return self.at_steps(np.clip(np.round(x / self.step), first, last))

    def log_slope(self, cells: np.ndarray) -> Float[np.ndarray, " rows"]:
        slope = -np.log(self.widths[self._bin(cells)])
        slope = np.where(self.is_strange(cells), -np.inf, slope)
        return np.where(np.isnan(cells), 0.0, slope)

    def is_strange(self, cells: np.ndarray) -> Bool[np.ndarray, " rows"]:
        if self.decimals is not None:
            # Decimals of half the usual digits look crooked.
            cells = np.round(cells, self.decimals)
        return (cells < self.smallest) | (cells > self.largest)

    def levels(self, z: Float[np.ndarray, "rows 1"], count: int) -> Float[np.ndarray, " rows"]:
        number, bins = z[:, 0], len(self.widths)
        if bins <= count:
            return number
        known = ~np.isnan(number)
        sizes = np.bincount(number[known].astype(np.int64), minlength=bins)
        # Neighbours share a level until it has its part of the rows.
        middle = (np.cumsum(sizes) - sizes / 2) / max(1, sizes.sum())
        level = np.minimum(np.floor(middle * count), count - 1)
        return np.where(known, level[np.where(known, number, 0).astype(np.int64)], np.nan)

    def _bin(self, cells: np.ndarray) -> np.ndarray:
        """The bin of each cell, or of the nearest that is possible."""
        return np.searchsorted(self.edges[1:-1], cells, side="right")

    # -- events ------------------------------------------------------------------------------------

    def alternatives(self, pieces: Sequence[Constraint]) -> list[Alternative]:
        segments, spots = [], []
        for piece in pieces:
            if not isinstance(piece, Interval):
                raise TypeError(f"a column of numbers is constrained by intervals, got {piece}")
            segment = self._segment(piece)
            if segment is not None:
                segments.append(segment)
            elif self.decimals is None and piece.is_point and self._holds(piece.lower):
                cell = float(piece.lower)
                spots.append(Spot(float(self._bin(np.array([cell]))[0]), cell))
        events: list[Alternative] = [{0: self.event(segments)}] if segments else []
        return [*events, *({0: spot} for spot in spots)]

    def _holds(self, number: float | int) -> bool:
        return self.smallest <= number <= self.largest

    def event(self, segments: Segments) -> Covered:
        """The event that a number lies in some segments, at least one."""
        shares = self.shares(segments)
        (hit,) = np.nonzero(shares)
        states, weights = torch.from_numpy(hit).double(), torch.from_numpy(shares[hit])
        return Covered(states, weights, table=False, segments=tuple(segments))

    def shares(self, segments: Segments) -> Float[np.ndarray, " bins"]:
        """Which part of each bin some segments cover."""
        lower, upper = np.array(segments, dtype=np.float64).reshape(-1, 2).T[..., None]
        both = np.minimum(upper, self.edges[1:]) - np.maximum(lower, self.edges[:-1])
        return np.minimum(np.maximum(both, 0.0).sum(0) / self.widths, 1.0)

    def segments_of(self, event: Any) -> Segments:
        """Where a column can be, given an event of it; everywhere without one."""
        whole = [(float(self.edges[0]), float(self.edges[-1]))]
        return event.segments if isinstance(event, Covered) else whole

    def _segment(self, piece: Interval) -> tuple[float, float] | None:
        """An interval within the edges; None where no cell, or one point only, can be in it."""
        lower, upper = float(piece.lower), float(piece.upper)
        if self.decimals is not None:
            cells = grid_points(piece, self.step)
            if cells is None:
                return None
            lower, upper = (cells[0] - 0.5) * self.step, (cells[1] + 0.5) * self.step
        lower, upper = max(lower, float(self.edges[0])), min(upper, float(self.edges[-1]))
        return (lower, upper) if lower < upper else None

    # -- words and files ---------------------------------------------------------------------------

    def describe(self) -> str:
        word = "numbers" if self.decimals is None else f"numbers in steps of {self.step:g}"
        word = "integers" if self.decimals == 0 else word
        count = len(self.widths)
        bins = "1 bin" if count == 1 else f"{count} bins"
        return f"{bins} of {word}, from {self.smallest:g} to {self.largest:g}"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "edges": self.edges.tolist(), "decimals": self.decimals}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Binned:
        decimals = plain["decimals"]
        if decimals is not None and (type(decimals) is not int or not -300 < decimals < 300):
            raise ValueError(f"decimals must be a small integer or None, got {decimals!r}")
        return cls(plain["edges"], decimals)
