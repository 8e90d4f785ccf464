"""A column cut into finitely many parts: values one by one, and bins of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int

from einet.engine.few_rows import FewPasses
from einet.tables.binned_marginal import BinnedMarginal
from einet.tables.columns import Binned, Coding, Number, Spiked, States
from einet.tables.columns.bin_events import Spot
from einet.tables.constraints import Interval, Pieces, Values
from einet.tables.leaves import GaussianLeaves, cdf_at
from einet.tables.marginal import Marginal

__all__ = ["Bins"]


class Bins:
    r"""The parts of a column, which do not overlap and leave nothing out.

    Of a column of states these are its values, of one with spikes the spikes come first. Numbers
    beside them lie below the first edge, between neighbouring edges, or above the last:

    .. math:: (-\infty, e_0],\; (e_0, e_1],\; \dots,\; (e_{n-1}, e_n],\; (e_n, \infty)

    Their probabilities are exact: differences of distribution functions of leaves, which are
    computed once for a model.

    Args:
        coding: The column.
        edges: The edges between bins of numbers, ascending; on a grid they lie between its points.

    Example:
        >>> from einet.tables.monotone import MonotoneMap
        >>> ages = Number(MonotoneMap.fit(np.arange(17.0, 90.0), 16.5, 90.5), decimals=0)
        >>> bins = Bins(ages, [16.5, 40.5, 90.5])
        >>> [str(piece) for (piece,) in bins.pieces]
        ['(-inf, 16.5]', '(16.5, 40.5]', '(40.5, 90.5]', '(90.5, inf)']
        >>> bins.place(np.array([17.0, 41.0, np.nan]))
        array([ 1,  2, -1])
    """

    def __init__(self, coding: Coding, edges: Sequence[float | int] = ()) -> None:
        self.coding = coding
        self.number = coding.number if isinstance(coding, Spiked) else coding
        #: The values that are parts of their own: states or spikes.
        self.values: list[Any] = []
        if isinstance(coding, States):
            self.values = list(coding.values)
        elif isinstance(coding, Spiked):
            self.values = coding.spikes.tolist()
        self.edges = np.asarray(edges, dtype=np.float64)
        if not isinstance(self.number, Number | Binned):
            if len(self.edges):
                raise ValueError(f"edges are for columns of numbers, got {coding.describe()}")
            return
        if len(self.edges) < 2 or not (np.diff(self.edges) > 0).all():
            raise ValueError(f"edges must be two or more, and ascend, got {list(edges)}")
        if isinstance(self.number, Binned):
            return
        inside = np.clip(self.edges, self.number.scale.lower, self.number.scale.upper)
        self._z = torch.from_numpy(np.clip(self.number.scale.forward(inside), -1e300, 1e300))
        # They go with the passes that they were made for.
        self._tables: WeakKeyDictionary[FewPasses, dict[int, np.ndarray]] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self.values) + (len(self.edges) + 1 if len(self.edges) else 0)

    @property
    def pieces(self) -> list[Pieces]:
        """What each part is, as a constraint of the column.

        Those of numbers hold the spikes that lie in them, too.
        """
        if isinstance(self.coding, States) and not self.coding.is_number:
            return [(Values([value]),) for value in self.values]
        parts: list[Pieces] = [(Interval.at(value),) for value in self.values]
        ends = [-np.inf, *self.edges.tolist(), np.inf] if len(self.edges) else []
        return [*parts, *((Interval(a, b, closed_lower=False),) for a, b in pairwise(ends))]

    def ends(self) -> list[tuple[float, float]]:
        """Between what the numbers of each bin lie, on the model's scale if there is one."""
        if not len(self.edges):
            return []
        inner = self.edges if isinstance(self.number, Binned) else self._z
        return list(pairwise([-np.inf, *inner.tolist(), np.inf]))

    def of_bins(self, event: Any = None) -> Float[np.ndarray, "bins parts"]:
        """The probability of each part given each bin of a column in bins, and an event of it."""
        assert isinstance(self.number, Binned)
        if isinstance(event, Spot):
            part = int(self.place(np.array([event.cell]))[0])
            return np.tile(np.eye(len(self))[part], (len(self.number.widths), 1))
        possible = self.number.segments_of(event)
        shares = [
            self.number.shares([(max(a, low), min(b, high)) for a, b in possible])
            for low, high in self.ends()
        ]
        return np.stack(shares, 1) / np.maximum(self.number.shares(possible), 1e-300)[:, None]

    def place(self, cells: np.ndarray) -> Int[np.ndarray, " rows"]:
        """The part that each cell lies in, −1 where it is missing or none of the values."""
        if isinstance(self.coding, States):
            which = self.coding.encode(cells)[:, 0]
            which = np.where(self.coding.is_strange(cells), np.nan, which)
            return np.where(np.isnan(which), -1, which).astype(np.int64)
        place = len(self.values) + np.searchsorted(self.edges, cells)
        if isinstance(self.coding, Spiked):
            spike = self.coding.encode(cells)[:, 0]
            place = np.where(spike > 0, spike - 1, place)
        return np.where(np.isnan(cells), -1, place).astype(np.int64)

    def masses(self, marginal: Marginal) -> Float[np.ndarray, "rows parts"]:
        """The probability of each part in every row."""
        if isinstance(self.coding, States):
            return marginal.shares
        if isinstance(marginal, BinnedMarginal):
            answer = marginal.between(self.edges)
        else:
            numbers = np.zeros((len(marginal.shares), len(self.edges) + 1))
            for leaves, ends, share in marginal.weighted_parts():
                numbers += share[:, None] * self.of_leaves(leaves, ends, len(share))
            answer = self.joined(marginal.shares, numbers)
        if marginal.known is not None:
            place = self.place(marginal.known)
            answer[place >= 0] = np.eye(len(self))[place[place >= 0]]
        return answer

    def joined(
        self,
        shares: Float[np.ndarray, "rows states"],
        numbers: Float[np.ndarray, "rows bins"],
    ) -> Float[np.ndarray, "rows parts"]:
        """All parts, from the probabilities of states and of bins of numbers given no spike."""
        if isinstance(self.coding, Spiked):
            return np.concatenate([shares[:, 1:], shares[:, :1] * numbers], 1)
        return numbers

    def of_leaves(
        self, leaves: Sequence[GaussianLeaves], ends: tuple[float, float], rows: int
    ) -> Float[np.ndarray, "rows bins"]:
        """The probability of each bin of numbers, which are known to lie between ``ends``."""
        if np.isfinite(ends).any() or any(part.source is None for part in leaves):
            at = cdf_at(list(leaves), self._z.expand(rows, -1), ends).numpy()
            full = np.concatenate([np.zeros((rows, 1)), at, np.ones((rows, 1))], 1)
            return np.maximum(np.diff(full, axis=1), 0.0)
        total = np.zeros((rows, len(self.edges) + 1))
        for part in leaves:
            assert part.source is not None
            passes, node = part.source
            kept = self._tables.setdefault(passes, {})
            table = kept.get(node)
            if table is None:
                # No lock: threads may make it at the same time, and either serves.
                table = kept[node] = self._table(part)
            total[part.rows] += part.weight.numpy().T @ table
        return total

    def _table(self, part: GaussianLeaves) -> Float[np.ndarray, "leaves bins"]:
        """The probability of each bin in every leaf, to as many digits above as below the mean."""
        away = (self._z - part.mean[:, None]) / part.deviation[:, None]
        below, above = torch.special.ndtr(away).numpy(), torch.special.ndtr(-away).numpy()
        inner = np.where(
            away[:, :-1].numpy() > 0, above[:, :-1] - above[:, 1:], below[:, 1:] - below[:, :-1]
        )
        return np.concatenate([below[:, :1], np.maximum(inner, 0.0), above[:, -1:]], 1)
