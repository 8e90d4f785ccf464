"""What may be known of a column in bins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from einet.data.events import States

__all__ = ["Covered", "Segments", "Spot"]

#: Intervals that do not overlap, ascending; on a grid they end half a step beside its points.
Segments = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Covered(States):
    """The event that a number lies in some segments: each bin counts by the part that they cover.

    Attributes:
        segments: The segments.
    """

    segments: tuple[tuple[float, float], ...]


class Spot(float):
    """The number of a bin, of which one cell is known.

    Args:
        state: The number of the bin.
        cell: The cell.
    """

    cell: float

    def __new__(cls, state: float, cell: float = math.nan) -> Spot:
        spot = super().__new__(cls, state)
        spot.cell = cell
        return spot
