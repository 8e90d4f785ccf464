"""Where bins of numbers end: with as many cells in each, or at numbers that are given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

__all__ = ["even_edges", "outer_edges"]


def even_edges(
    cells: Float[np.ndarray, " rows"],
    count: int,
    lower: float,
    upper: float,
    decimals: int | None = None,
) -> list[float]:
    """The edges of bins of about as many cells each, none of them empty.

    They lie midway between cells; on a grid half a step beside its points.

    Args:
        cells: The cells, none of them missing.
        count: How many bins there are at most; fewer where cells repeat a lot.
        lower, upper: The smallest and the largest number.
        decimals: To how many decimals the cells are rounded, if they are.

    Example:
        >>> even_edges(np.array([1.0, 2.0, 2.0, 5.0, 9.0, 9.0]), 3, 1.0, 9.0, decimals=0)
        [0.5, 3.5, 7.5, 9.5]
    """
    values, sizes = np.unique(cells, return_counts=True)
    until = np.cumsum(sizes)
    wanted = until[-1] * np.arange(1, count) / count
    # The last value of each bin but the last: the one with which it comes closest.
    after = np.minimum(np.searchsorted(until, wanted), len(until) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(until[before] - wanted) < np.abs(until[after] - wanted)
    last = np.unique(np.where(nearer, before, after))
    last = last[last < len(values) - 1]
    below, above = values[last], values[last + 1]
    if decimals is None:
        middles = below + (above - below) / 2
        # Midway between neighbours that float64 can hardly tell apart is one of them.
        return [lower, *np.where(middles > below, middles, above).tolist(), upper]
    step = 10.0**-decimals
    # The ends need not lie on the grid.
    low, high = np.ceil(round(lower / step, 6)) - 1, np.floor(round(upper / step, 6))
    inner = np.floor((np.round(below / step) + np.round(above / step)) / 2)
    return _half_above(np.array([low, *inner, high]), step)


def outer_edges(edges: Sequence[float | int], decimals: int | None = None) -> list[float]:
    """Edges that are given as the smallest number of each bin, and the last one of all.

    Args:
        edges: They, ascending.
        decimals: To how many decimals cells are rounded, if they are.

    Example:
        >>> outer_edges([0, 18, 65], decimals=0)
        [-0.5, 17.5, 65.5]
    """
    if decimals is None:
        return [float(edge) for edge in edges]
    step = 10.0**-decimals
    numbers = np.round(np.asarray(edges, dtype=np.float64) / step, 6)
    steps = np.append(np.ceil(numbers[:-1]) - 1, np.floor(numbers[-1]))
    if bool((np.diff(steps) <= 0).any()):
        raise ValueError(
            f"edges must ascend, with a number in steps of {step:g} in every bin, got {list(edges)}"
        )
    return _half_above(steps, step)


def _half_above(steps: np.ndarray, step: float) -> list[float]:
    """What lies half a step above points of a grid, which are counted in steps."""
    return ((steps + 0.5) * step).tolist()
