r"""The mean of a column given an event, from probabilities of boxes alone.

.. math:: E[X] = m + \int_m^\infty P(X > x)\, dx - \int_{-\infty}^m P(X \le x)\, dx

with :math:`m` the median, so that no small number is the difference of large ones. Of numbers on a
grid, such as integers, the integrals are sums, and the mean is exact as long as there are no more
than some thousands of them; otherwise they are found by a quadrature that halves its panels until
nothing changes. Where a source has a shorter way (:meth:`~.source.Source.marginal`), as a model of
a table has for a few boxes, it is taken: its means are integrals too, right to six digits or more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from einet.tables.constraints import Interval
from einet.tables.query.conditional import Conditional, Number, multiple
from einet.tables.query.quantiles import quantile

__all__ = ["mean"]

# What lies farther out than this share of all is left out, where a column has no bounds.
_TAIL = 1e-13
_NODES, _MOST_ROUNDS, _TOLERANCE = 10, 24, 1e-8
_FIRST_PANELS, _MOST_SPLIT = 8, 256
_MOST_SUMMED = 4096

#: A probability for each of several numbers.
_Tail = Callable[[Sequence[Number]], np.ndarray]


def mean(known: Conditional) -> float:
    """The mean of a column of numbers, given an event.

    Args:
        known: The column, given the event.
    """
    column = known.column
    if known.values:
        chances = known.shares([(Interval.at(value),) for value in known.values])
        return float(np.dot(known.values, chances) / np.sum(chances))
    if known.numbers is not None:
        return known.numbers.mean()
    middle = quantile(known, 0.5)
    lower, upper = known.ends(_TAIL)
    if column.step is not None:
        # What lies below a number does not count the number itself.
        above = _sum(known.beyond, middle, upper, column.step)
        below = _sum(known.up_to, lower - column.step, middle, column.step)
        return float(middle + above - below)
    spikes = [spike for spike in column.spikes if lower < spike < upper]
    above = _integral(known.beyond, [middle, *(x for x in spikes if x > middle), upper])
    below = _integral(known.up_to, [lower, *(x for x in spikes if x < middle), middle])
    return float(middle + above - below)


def _sum(tail: _Tail, lower: Number, upper: Number, step: Number) -> float:
    """The integral of a staircase between two numbers of a grid.

    Each stair counts as long as there are not too many; between those that do, stairs are taken to
    rise evenly.
    """
    first, last = math.floor(lower / step + 1e-9), math.ceil(upper / step - 1e-9)
    if last <= first:
        return 0.0
    at = multiple(step)
    kept = np.unique(np.linspace(first, last, min(last - first + 1, _MOST_SUMMED)).round())
    heights = tail([at(int(number)) for number in kept])
    stairs = np.diff(kept)
    rise = np.diff(heights) * (stairs - 1) / 2
    return float(step * np.sum(stairs * heights[:-1] + rise))


def _lobatto(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss' rule with both ends: what rises between two nodes cannot stay unseen, however fast."""
    legendre = np.polynomial.legendre.Legendre.basis(count - 1)
    nodes = np.concatenate([[-1.0], legendre.deriv().roots(), [1.0]])
    return nodes, 2 / (count * (count - 1) * legendre(nodes) ** 2)


def _integral(tail: _Tail, edges: Sequence[Number]) -> float:
    """The integral of a monotone function between the first and the last of some edges."""
    ends = sorted(set(map(float, edges)))
    if len(ends) < 2:
        return 0.0
    cuts = [np.linspace(*pair, _FIRST_PANELS + 1) for pair in itertools.pairwise(ends)]
    starts = np.concatenate([cut[:-1] for cut in cuts])
    stops = np.concatenate([cut[1:] for cut in cuts])
    nodes, weights = _lobatto(_NODES)

    def areas(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        half = (stops - starts)[:, None] / 2
        places = starts[:, None] + half * (nodes + 1)
        heights = tail(places.reshape(-1).tolist()).reshape(places.shape)
        return (heights * weights * half).sum(1)

    whole, total = areas(starts, stops), 0.0
    for _ in range(_MOST_ROUNDS):
        middles = (starts + stops) / 2
        halves = areas(np.concatenate([starts, middles]), np.concatenate([middles, stops]))
        left, right = np.split(halves, 2)
        change = np.abs(left + right - whole)
        scale = total + float(np.sum(left + right))
        rough = change > _TOLERANCE * max(scale, 1e-300)
        # Only the worst are worth the time where there are very many.
        if rough.sum() > _MOST_SPLIT:
            rough &= change >= np.sort(change)[-_MOST_SPLIT]
        total += float(np.sum((left + right)[~rough]))
        if not rough.any():
            return total
        starts = np.concatenate([starts[rough], middles[rough]])
        stops = np.concatenate([middles[rough], stops[rough]])
        whole = np.concatenate([left[rough], right[rough]])
    return total + float(whole.sum())
