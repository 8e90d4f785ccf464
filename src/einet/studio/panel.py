"""One column: where its bins lie, and what the model makes of it.

All probabilities are exact. Bins follow from the model alone, so that answers can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from einet.studio.evidence import Terms
from einet.tables import TableModel, TablePosterior
from einet.tables.binned_marginal import BinnedMarginal
from einet.tables.bins import Bins
from einet.tables.columns import Binned, Number, Spiked, States
from einet.tables.marginal import Marginal

__all__ = ["NUM_BINS", "Panel", "edges_of"]

#: Bins of a column of numbers.
NUM_BINS = 40
# So much of a column lies beyond its bins, at either side.
_BEYOND = 0.001
# The density is looked at in so many places for its highest.
_PLACES = 201
# What lies beyond this share is nothing.
_LITTLE = 1e-9


class Panel:
    """A column that the model knows: its bins and its terms.

    Args:
        model: The model.
        name: The name of the column.
        prior: The distribution of all columns, given nothing.
    """

    def __init__(self, model: TableModel, name: Any, prior: TablePosterior) -> None:
        self.name, self.terms = name, Terms(model.table, name)
        coding = model.table.coding(name)
        self.coding: Any = coding
        self.number: Any = coding.number if isinstance(coding, Spiked) else coding
        edges: Sequence[float] = ()
        if isinstance(self.number, Number | Binned):
            beside = prior.marginal(name)
            if isinstance(coding, Spiked):
                beside = Marginal(name, self.number, beside.kind, np.ones((1, 1)), beside.parts)
            low, high = beside.quantiles([_BEYOND, 1 - _BEYOND])[:, 0].tolist()
            edges = edges_of(self.number, low, high)
        self.bins = Bins(coding, edges)
        #: Where the density is looked at, there and on the model's scale; nowhere without numbers.
        self._places = self._scaled = self._slopes = np.empty(0)
        if isinstance(self.number, Number):
            self._places = self._looked_at()
            scale = self.number.scale
            self._scaled, self._slopes = scale.forward(self._places), scale.log_slope(self._places)

    @property
    def kind(self) -> str:
        """The word for what it is, in the page."""
        if isinstance(self.coding, States):
            return "ordered" if self.coding.ordered else "states"
        if self.terms.is_date:
            return "date"
        return "integer" if self.terms.is_whole else "number"

    def described(self) -> dict[str, Any]:
        """What does not depend on any question."""
        terms, values = self.terms, [self.terms.value(value) for value in self.bins.values]
        is_states = isinstance(self.coding, States)
        told: dict[str, Any] = {
            "name": str(self.name),
            "kind": self.kind,
            "description": self.coding.describe(),
            "is_spiked": isinstance(self.coding, Spiked),
            "values": values if is_states else None,
            "spikes": None if is_states else values,
            "edges": None,
            "lower": None,
            "upper": None,
        }
        if terms.cells.is_temporal and not terms.is_date:
            told["unit"] = "seconds"
        if not is_states:
            told["edges"] = [terms.axis(edge) for edge in self.bins.edges.tolist()]
            told["lower"] = terms.value(self.number.smallest)
            told["upper"] = terms.value(self.number.largest)
            if terms.is_date:
                told["edge_labels"] = [terms.value(edge) for edge in self.bins.edges.tolist()]
        return told

    def masses(self, masses: np.ndarray) -> dict[str, Any]:
        """The probabilities, or shares, of its parts."""
        if isinstance(self.coding, States):
            return {"bins": None, "spikes": None, "values": masses}
        first = len(self.bins.values)
        numbers = masses[first:]
        return {
            "bins": numbers[1:-1],
            "spikes": masses[:first],
            "values": None,
            "below": numbers[0],
            "above": numbers[-1],
        }

    def answered(self, posterior: TablePosterior, mass: float) -> dict[str, Any]:
        """Its distribution given evidence, with what tells of it in a few numbers."""
        marginal, terms = posterior.marginal(self.name), self.terms
        masses = self.bins.masses(marginal)[0]
        told = self.masses(masses)
        told |= {"mean": None, "median": None, "interval": None, "entropy": None}
        if isinstance(self.coding, States):
            possible = masses[masses > 0]
            told["entropy"] = float(-(possible * np.log(possible)).sum())
            told["mode"] = terms.value(self.bins.values[int(masses.argmax())])
        else:
            told["mode"] = terms.value(self._mode(marginal, masses))
        has_order = not isinstance(self.coding, States) or self.coding.ordered
        if has_order:
            shares = [0.5, (1 - mass) / 2, (1 + mass) / 2, _LITTLE, 1 - _LITTLE]
            median, low, high, *ends = marginal.quantiles(shares)[:, 0].tolist()
            told["median"] = terms.value(median)
            told["interval"] = [terms.value(low), terms.value(high)]
            if self.coding.is_number:
                # Where one number of a grid is left, that is the mean, and not the middle of what
                # the smooth density has around it.
                mean = ends[0] if ends[0] == ends[1] else float(marginal.mean()[0])
                told["mean"] = self._mean(mean)
        return told

    def _mean(self, mean: float) -> Any:
        """A mean of integers is seldom one."""
        return self.terms.value(mean) if self.terms.is_date else mean * self.terms.unit

    def _mode(self, marginal: Marginal, masses: np.ndarray) -> float:
        """The likeliest number.

        On a grid each has a probability, as spikes have. Elsewhere a spike is it where it outweighs
        all numbers beside, and otherwise the densest place.
        """
        if marginal.known is not None and not np.isnan(marginal.known[0]):
            return float(marginal.known[0])
        if isinstance(marginal, BinnedMarginal):
            return float(marginal.mode()[0])
        first = len(self.bins.values)
        spikes, beside = masses[:first], float(masses[first:].sum())
        density = self._density(marginal, self._scaled, self._slopes)
        best = beside
        if self.number.decimals is not None:
            best = beside * float(density.max()) * self.number.step
        if first and spikes.max() >= best:
            return self.bins.values[int(spikes.argmax())]
        return float(self._places[int(density.argmax())])

    def _looked_at(self) -> np.ndarray:
        edges = self.bins.edges
        x = np.linspace(edges[0], edges[-1], _PLACES)
        if self.number.decimals is not None:
            x = np.unique(np.round(x, self.number.decimals))
        return x[(x >= self.number.smallest) & (x <= self.number.largest)]

    def density(self, marginal: Marginal, x: np.ndarray) -> np.ndarray:
        """The density of numbers beside spikes at some places."""
        if isinstance(marginal, BinnedMarginal):
            return marginal.density(x)[0]
        scale = self.number.scale
        return self._density(marginal, scale.forward(x), scale.log_slope(x))

    @staticmethod
    def _density(marginal: Marginal, z: np.ndarray, log_slope: np.ndarray) -> np.ndarray:
        total = np.zeros(len(z))
        for leaves, ends, share in marginal.weighted_parts():
            inside = (z >= ends[0]) & (z <= ends[1])
            for part in leaves:
                mean, deviation = part.mean.numpy()[:, None], part.deviation.numpy()[:, None]
                weight = part.weight.numpy()[:, 0] * share[0]
                peaks = np.exp(-0.5 * ((z - mean) / deviation) ** 2 + log_slope) / deviation
                total += inside * (weight / _whole(mean, deviation, ends) @ peaks)
            if ends[0] == ends[1]:
                total[np.abs(z - ends[0]).argmin()] = np.inf
        return total


def _readable(width: float) -> int:
    """The smallest whole number of one digit, or of two that are easily counted, and zeros."""
    power = 1
    while True:
        for tenths in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80):
            if tenths * power % 10 == 0 and tenths * power >= 10 * width:
                return tenths * power // 10
        power *= 10


def _whole(mean: np.ndarray, deviation: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
    """What the densities of leaves between two ends are to be divided by."""
    root = math.sqrt(2 * math.pi)
    if not np.isfinite(ends).any():
        return np.full(len(mean), root)
    low, high = (
        torch.special.ndtr(torch.from_numpy((end - mean[:, 0]) / deviation[:, 0])).numpy()
        for end in ends
    )
    return root * np.maximum(high - low, np.finfo(np.float64).tiny)


def edges_of(number: Number | Binned, low: float, high: float) -> list[float]:
    """Edges of at most so many bins of equal width that hold what lies between two numbers.

    Those of a grid lie half a step beside its points.

    Args:
        number: The coding of the numbers.
        low, high: Between what they lie, but for a little.
    """
    if number.seen is not None:
        low, high = max(low, number.seen[0]), min(high, number.seen[1])
    if not high > low:
        high = low + (number.step or max(abs(low), 1.0) * 1e-3)
    if number.decimals is not None:
        first, last = round(low / number.step), round(high / number.step)
        width = _readable((last - first + 1) / NUM_BINS)
        if last // width - first // width >= NUM_BINS:
            width = _readable(width + 1)
        first, last = first // width, last // width
        edges = [(n * width - 0.5) * number.step for n in range(first, last + 2)]
        return np.round(edges, number.decimals + 1).tolist()
    # Rounded outwards, to numbers that can be read.
    unit = 10.0 ** math.floor(math.log10((high - low) / NUM_BINS))
    low = max(math.floor(low / unit) * unit, number.smallest)
    high = min(math.ceil(high / unit) * unit, number.largest)
    return np.linspace(low, high, NUM_BINS + 1).tolist()
