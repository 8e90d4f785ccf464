"""The distribution of one column given evidence, in each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from einet.tables.cells import CellType
from einet.tables.columns import Binned, Number, Spiked, States
from einet.tables.leaves import GaussianLeaves, average_of_map, cdf_at

__all__ = ["Marginal", "Part"]

# Halvings of an interval of z after which float64 sees no difference.
_HALVINGS = 70
# So many rows are few, and so many points of each are looked at together.
_FEW, _POINTS_OF_FEW = 8, 31
# Gaussian leaves have nothing left beyond so many of their deviations.
_REACH = 12.0


class Part(NamedTuple):
    """One of several alternatives that the numbers of a column come from.

    Attributes:
        share: Its probability in every row.
        ends: Between what the variable is known to lie.
        leaves: What gives the variable's leaves.
    """

    share: Float[np.ndarray, " rows"]
    ends: tuple[float, float]
    leaves: Callable[[], list[GaussianLeaves]]


class Marginal:
    r"""P(x | e) of one column: states with probabilities, and numbers with a density beside them.

    .. math:: P(X \le x) = \sum_{s_j \le x} p_j + p_0\, F(f(x))

    with spikes :math:`s_j`, f the map to the model's scale and F the distribution there, a mixture
    of Gaussians over all leaves and alternatives. Of a column of states there is the first term
    only, of one of numbers the second.

    Args:
        column: The name of the column.
        coding: How it becomes variables.
        kind: What its cells are in the user's data frame.
        shares: The probabilities of states ``[rows, states]``; of a column with spikes the first is
            that of no spike.
        parts: Where the numbers beside the states come from.
        known: The cells of a column of numbers that are known; NaN elsewhere.
    """

    def __init__(
        self,
        column: Any,
        coding: Number | Spiked | States | Binned,
        kind: CellType,
        shares: Float[np.ndarray, "rows states"],
        parts: Sequence[Part] = (),
        known: Float[np.ndarray, " rows"] | None = None,
    ) -> None:
        self.known = known
        self.column, self.coding, self.kind, self.shares = column, coding, kind, shares
        self.parts = parts
        self.number = coding.number if isinstance(coding, Spiked) else coding
        self._leaves: list[list[GaussianLeaves]] | None = None

    # -- questions -------------------------------------------------------------------------------

    def mean(self) -> Float[np.ndarray, " rows"]:
        """The expectation of the numbers behind the cells."""
        if isinstance(self.coding, States):
            if not self.coding.is_number:
                raise ValueError(
                    f"column {self.column!r} has categories, which have no mean; ask for their "
                    "probabilities"
                )
            return self.shares @ np.array(self.coding.values)
        beside = np.zeros(len(self.shares))
        for leaves, (share, ends, _) in zip(self._all_leaves(), self.parts, strict=True):
            assert isinstance(self.number, Number)
            average = average_of_map(leaves, len(beside), self.number.scale, ends)
            beside = beside + np.where(share > 0, share * average, 0.0)
        if isinstance(self.coding, Spiked):
            beside = self.shares[:, 0] * beside + self.shares[:, 1:] @ self.coding.spikes
        return self._with_known(beside)

    def cdf(self, x: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """P(X ≤ x) of each row."""
        if isinstance(self.coding, States):
            if not self.coding.is_number:
                raise ValueError(f"column {self.column!r} has categories, which are no numbers")
            below = np.array(self.coding.values) <= x[:, None]
            return (self.shares * below).sum(1)
        assert isinstance(self.number, Number)
        edge = x + self.number.step / 2
        if self.number.decimals is not None:
            # Between two points of a grid nothing is added.
            edge = (np.floor(x / self.number.step + 1e-9) + 0.5) * self.number.step
        inside = np.clip(edge, self.number.scale.lower, self.number.scale.upper)
        z = torch.from_numpy(self.number.scale.forward(inside))
        total = self._cdf(z.unsqueeze(1))[:, 0].numpy()
        if isinstance(self.coding, Spiked):
            below = self.coding.spikes <= x[:, None]
            total = self.shares[:, 0] * total + (self.shares[:, 1:] * below).sum(1)
        if self.known is None:
            return total
        return np.where(np.isnan(self.known), total, (self.known <= x).astype(np.float64))

    def quantile(self, q: float) -> np.ndarray:
        """The smallest value x with P(X ≤ x) ≥ q, as a number or category."""
        return self.quantiles([q])[0]

    def quantiles(self, q: Sequence[float]) -> np.ndarray:
        """Those of several q, ``[len(q), rows]``, found together."""
        shares = np.asarray(q, dtype=np.float64)
        if isinstance(self.coding, States):
            if not self.coding.ordered:
                raise ValueError(
                    f"column {self.column!r} has categories without an order, so no quantiles"
                )
            reached = np.cumsum(self.shares, 1) >= shares[:, None, None] * (1 - 1e-12)
            # What sums to 1 but for rounding is reached by the last.
            reached[..., -1] = True
            first = reached.argmax(2).astype(np.float64)
            return self.coding.decode(first.reshape(-1, 1)).reshape(first.shape)
        return self._number_quantiles(shares)

    def fill(self, method: str, kind: CellType) -> np.ndarray:
        """What missing cells get; see :meth:`TablePosterior.impute`."""
        if isinstance(self.coding, States):
            if method == "mean" and self.coding.is_number and not kind.is_whole:
                return self.mean()
            if method == "mean" and self.coding.is_number:
                return np.round(self.mean())
            if method == "median" and self.coding.ordered:
                return self.quantile(0.5)
            return self.coding.decode(self.shares.argmax(1).astype(np.float64).reshape(-1, 1))
        if method == "mean":
            mean = self.mean()
            return np.round(mean) if kind.is_whole or kind.is_temporal else mean
        median = self._number_quantiles(np.array([0.5]))[0]
        if method == "mode" and isinstance(self.coding, Spiked):
            best = self.shares.argmax(1)
            spikes = self.coding.spikes[np.maximum(best - 1, 0)]
            return np.where(best > 0, spikes, median)
        return median

    def weighted_parts(
        self,
    ) -> Iterator[tuple[list[GaussianLeaves], tuple[float, float], Float[np.ndarray, " rows"]]]:
        """Leaves, ends and share of every alternative that the numbers beside states come from."""
        for leaves, (share, ends, _) in zip(self._all_leaves(), self.parts, strict=True):
            yield leaves, ends, share

    # -- cells -----------------------------------------------------------------------------------

    def mean_cells(self) -> np.ndarray:
        """The mean, as a moment of a column of dates and times."""
        return self._moments(self.mean())

    def quantile_cells(self, q: Sequence[float]) -> np.ndarray:
        """The quantiles, as moments of a column of dates and times."""
        return self._moments(self.quantiles(q))

    def _moments(self, numbers: np.ndarray) -> np.ndarray:
        if not self.kind.is_temporal:
            return numbers
        whole = np.round(numbers * self.kind.per_unit).astype(np.int64)
        is_date = self.kind.name in ("Datetime", "Date")
        return whole.astype("M8[us]" if is_date else "m8[us]")

    # -- the scale of the model ------------------------------------------------------------------

    def _cdf(self, z: Float[Tensor, "rows points"]) -> Float[Tensor, "rows points"]:
        """F(z) at some points of each row: P(Z ≤ z) of the numbers beside spikes."""
        total = torch.zeros_like(z)
        for leaves, (share, ends, _) in zip(self._all_leaves(), self.parts, strict=True):
            total += torch.from_numpy(share).unsqueeze(1) * cdf_at(leaves, z, ends)
        return total

    def _all_leaves(self) -> list[list[GaussianLeaves]]:
        if self._leaves is None:
            self._leaves = [part.leaves() for part in self.parts]
        return self._leaves

    def _reach(self) -> tuple[float, float]:
        """Between what all leaves lie."""
        ends = [
            (leaf.mean + sign * _REACH * leaf.deviation)
            for leaves in self._all_leaves()
            for leaf in leaves
            for sign in (-1, 1)
        ]
        both = torch.cat(ends)
        return float(both.min()), float(both.max())

    def _number_quantiles(
        self, q: Float[np.ndarray, " shares"]
    ) -> Float[np.ndarray, "shares rows"]:
        """By cutting up an interval of z, on which spikes have their places too."""
        number = self.number
        assert isinstance(number, Number)
        rows, shares = len(self.shares), len(q)
        spikes, weights, none = np.empty(0), np.empty((rows, 0)), np.ones(rows)
        if isinstance(self.coding, Spiked):
            spikes, weights, none = self.coding.spikes, self.shares[:, 1:], self.shares[:, 0]
        inside = np.clip(spikes, number.scale.lower, number.scale.upper)
        place = torch.from_numpy(number.scale.forward(inside))
        mass, beside = torch.from_numpy(np.array(weights)), torch.from_numpy(np.array(none))
        least, most = self._reach()
        low = torch.full((rows, shares), least, dtype=torch.float64)
        high = torch.full((rows, shares), most, dtype=torch.float64)
        wanted = torch.from_numpy(np.minimum(q, 1 - 1e-12))

        def reached(z: Float[Tensor, "rows shares points"]) -> Bool[Tensor, "rows shares points"]:
            total = beside[:, None, None] * self._cdf(z.flatten(1)).view_as(z)
            if len(spikes):
                steps = mass[:, None, None] * (place <= z.unsqueeze(-1))
                total = total + steps.sum(-1)
            return total >= wanted[:, None]

        at_ends = reached(torch.stack([low, high], 2))
        below, above = at_ends[..., 0], ~at_ends[..., 1]
        # Where there are few rows it takes hardly longer to look at many points in each.
        points = _POINTS_OF_FEW if rows <= _FEW else 1
        parts = torch.arange(1, points + 1, dtype=torch.float64) / (points + 1)
        for _ in range(math.ceil(_HALVINGS / math.log2(points + 1))):
            inner = low.unsqueeze(2) + (high - low).unsqueeze(2) * parts
            cuts = torch.cat([low.unsqueeze(2), inner, high.unsqueeze(2)], 2)
            passed = (~reached(inner)).sum(2, keepdim=True)
            low, high = cuts.gather(2, passed)[..., 0], cuts.gather(2, passed + 1)[..., 0]
        x = number.decode(high.T.reshape(-1, 1).numpy()).reshape(shares, rows)
        if not len(spikes):
            return self._with_known(x)
        # A spike is a step: halving ends right at it.
        for spike, z in zip(spikes.tolist(), place.tolist(), strict=True):
            x = np.where(((low < z) & (z <= high)).T.numpy(), spike, x)
        # Where no density is left, below and above all leaves, spikes alone decide.
        until = mass.cumsum(1).unsqueeze(1)
        under = (until >= wanted[:, None]).long().argmax(2)
        over = ((beside[:, None, None] + until) >= wanted[:, None]).long().argmax(2)
        x = np.where(below.T.numpy(), spikes[under.T.numpy()], x)
        x = np.where(above.T.numpy(), spikes[over.T.numpy()], x)
        return self._with_known(x)

    def _with_known(self, x: np.ndarray) -> np.ndarray:
        """The same with cells that are known in their places."""
        return x if self.known is None else np.where(np.isnan(self.known), x, self.known)
