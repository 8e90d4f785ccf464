"""The distribution of a column in bins given evidence, in each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from einet.tables.cells import CellType
from einet.tables.columns import Binned
from einet.tables.columns.bin_events import Covered, Spot
from einet.tables.marginal import Marginal

__all__ = ["BinnedMarginal", "BinnedPart"]


class BinnedPart(NamedTuple):
    """One of several alternatives that the numbers of a column in bins come from.

    Attributes:
        share: Its probability in every row.
        probabilities: Those of the bins, given it.
        event: What it says of the column; None where it says nothing.
    """

    share: Float[np.ndarray, " rows"]
    probabilities: Float[np.ndarray, "rows bins"]
    event: Any


class BinnedMarginal(Marginal):
    r"""P(x | e) of a column in bins: a density that is constant between some cuts.

    Cuts are the edges of bins, and the ends of intervals that evidence says the column lies in:

    .. math:: P(X \le x) = \sum_i p_i\, \min\left(1, \frac{(x - a_i)_+}{b_i - a_i}\right)

    with :math:`p_i` the probability between the cuts :math:`a_i` and :math:`b_i`. All answers are
    exact. Single cells that evidence leaves are intervals without a width.

    Args:
        column: The name of the column.
        coding: Its bins.
        kind: What its cells are in the user's data frame.
        parts: The alternatives that its numbers come from.
        known: The cells that are known; NaN elsewhere.
    """

    def __init__(
        self,
        column: Any,
        coding: Binned,
        kind: CellType,
        parts: Sequence[BinnedPart],
        known: Float[np.ndarray, " rows"] | None = None,
    ) -> None:
        shares = np.sum([part.share[:, None] * part.probabilities for part in parts], axis=0)
        super().__init__(column, coding, kind, shares, (), known)
        self.bins = coding
        cells = [part.event.cell for part in parts if isinstance(part.event, Spot)]
        ends = [
            e for p in parts if isinstance(p.event, Covered) for s in p.event.segments for e in s
        ]
        cuts = np.unique(np.concatenate([coding.edges, ends, cells]))
        spots = np.unique(cells)
        lower, upper = np.append(cuts[:-1], spots), np.append(cuts[1:], spots)
        order = np.lexsort([upper, lower])
        #: The intervals that the density is constant in, ascending, and their probabilities.
        self.lower, self.upper = lower[order], upper[order]
        self.masses = np.zeros((len(shares), len(order)))
        for part in parts:
            self.masses += part.share[:, None] * self._spread(part)

    def _spread(self, part: BinnedPart) -> Float[np.ndarray, "rows intervals"]:
        """The probability of each interval in an alternative."""
        lower, upper = self.lower, self.upper
        if isinstance(part.event, Spot):
            at = (lower == part.event.cell) & (upper == part.event.cell)
            return np.broadcast_to(at.astype(np.float64), (len(part.share), len(at)))
        middles = lower + (upper - lower) / 2
        segments = np.array(self.bins.segments_of(part.event))
        starts = np.searchsorted(segments[:, 0], middles, side="right") - 1
        inside = (starts >= 0) & (middles < segments[np.maximum(starts, 0), 1])
        widths = np.where(inside, upper - lower, 0.0)
        bins = np.searchsorted(self.bins.edges[1:-1], middles, side="right")
        whole = np.bincount(bins, widths, len(self.bins.widths))[bins]
        return part.probabilities[:, bins] * (widths / np.where(whole > 0, whole, 1.0))

    # -- questions -------------------------------------------------------------------------------

    def mean(self) -> Float[np.ndarray, " rows"]:
        middles = self.lower + (self.upper - self.lower) / 2
        if self.bins.decimals is not None:
            # Half a step is the finest that the middle of a grid can lie at.
            middles = np.round(middles, self.bins.decimals + 1)
        return self._with_known(self.masses @ middles)

    def cdf(self, x: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        edge = x
        if self.bins.decimals is not None:
            # Between two points of a grid nothing is added.
            edge = (np.floor(x / self.bins.step + 1e-9) + 0.5) * self.bins.step
        total = (self.masses * self._below(edge[:, None])).sum(1)
        if self.known is None:
            return total
        return np.where(np.isnan(self.known), total, (self.known <= x).astype(np.float64))

    def between(
        self, edges: Float[np.ndarray, " edges"]
    ) -> Float[np.ndarray, "rows edges_and_one"]:
        """The probabilities below the first edge, between neighbours, and above the last."""
        below = self._below(edges[:, None])
        nothing, everything = np.zeros((1, len(self.lower))), np.ones((1, len(self.lower)))
        return self.masses @ np.diff(np.concatenate([nothing, below, everything]), axis=0).T

    def density(self, x: Float[np.ndarray, " places"]) -> Float[np.ndarray, "rows places"]:
        """The density at some places; infinite at single cells that evidence leaves."""
        densities, wide = self._densities(), self.upper > self.lower
        lower, upper = self.lower[wide], self.upper[wide]
        # A cut belongs to the interval above it, as an edge does.
        place = np.clip(np.searchsorted(lower, x, side="right") - 1, 0, None)
        inside = (x >= lower[place]) & (x <= upper[place])
        found = np.where(inside, densities[:, wide][:, place], 0.0)
        for spot in np.flatnonzero(~wide):
            found[:, x == self.lower[spot]] += densities[:, [spot]]
        return found

    def quantiles(self, q: Sequence[float]) -> np.ndarray:
        shares = np.asarray(q, dtype=np.float64)[:, None, None]
        masses = self.masses / self.masses.sum(1, keepdims=True)
        until, possible = np.cumsum(masses, 1), masses > 0
        reached = (until >= shares * (1 - 1e-12)) & possible
        # What sums to 1 but for rounding is reached by the last that is possible.
        last = masses.shape[1] - 1 - possible[:, ::-1].argmax(1)
        reached[:, np.arange(len(last)), last] = True
        place = reached.argmax(2)
        rows = np.arange(len(until))
        mass = masses[rows, place]
        before = until[rows, place] - mass
        part = np.clip((shares[..., 0] - before) / mass, 0.0, 1.0)
        lower, upper = self.lower[place], self.upper[place]
        if self.bins.decimals is None:
            return self._with_known(lower + part * (upper - lower))
        step = self.bins.step
        first, last = np.round(lower / step + 0.5), np.round(upper / step - 0.5)
        count = last - first + 1
        steps = first + np.clip(np.ceil(part * count - 1e-9), 1, count) - 1
        return self._with_known(self.bins.at_steps(steps))

    def mode(self) -> Float[np.ndarray, " rows"]:
        """The middle of where the density is highest."""
        best = self._densities().argmax(1)
        return self._with_known(self.bins.middle(self.lower[best], self.upper[best]))

    def fill(self, method: str, kind: CellType) -> np.ndarray:
        if method == "mean":
            mean = self.mean()
            return np.round(mean) if kind.is_whole or kind.is_temporal else mean
        return self.mode() if method == "mode" else self.quantiles([0.5])[0]

    # -- parts -----------------------------------------------------------------------------------

    def _below(self, x: Float[np.ndarray, "some 1"]) -> Float[np.ndarray, "some intervals"]:
        """Which part of each interval lies up to some numbers."""
        width = self.upper - self.lower
        part = (x - self.lower) / np.where(width > 0, width, 1.0)
        return np.where(width > 0, np.clip(part, 0.0, 1.0), x >= self.lower)

    def _densities(self) -> Float[np.ndarray, "rows intervals"]:
        width = self.upper - self.lower
        peaks = np.where(self.masses > 0, np.inf, 0.0)
        return np.where(width > 0, self.masses / np.where(width > 0, width, 1.0), peaks)
