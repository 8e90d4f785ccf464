"""One column given an event, as probabilities of boxes tell of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from einet.tables.constraints import Box, Interval, Pieces, intersection
from einet.tables.query.columns import AskedColumn
from einet.tables.query.source import Numbers, Source

__all__ = ["Conditional", "Number", "multiple", "narrowed"]

Number = float | int

# Steps away from where something is known, to look for the end of a column without bounds.
_WIDTHS = [2.0**power for power in range(-24, 501, 4)]


def narrowed(event: Sequence[Box], column: str, pieces: Pieces) -> list[Box]:
    """The part of an event where a column lies in some pieces.

    >>> narrowed([{"age": (Interval(30),)}, {}], "age", (Interval(upper=20),))
    [{'age': (Interval(lower=-inf, upper=20, closed_lower=False, closed_upper=True),)}]
    """
    boxes = []
    for box in event:
        left = intersection(box[column], pieces) if column in box else pieces
        if left:
            boxes.append({**box, column: left})
    return boxes


def multiple(step: Number) -> Callable[[Number], Number]:
    """Multiples of a step, as they are written: 0.3, not 0.30000000000000004.

    >>> multiple(0.1)(3)
    0.3
    """
    decimals = next((places for places in range(16) if round(step, places) == step), None)
    return lambda number: number * step if decimals is None else round(number * step, decimals)


class Conditional:
    """A column given an event; nothing can be asked of one that cannot happen.

    Args:
        source: What is asked.
        column: The column.
        event: Boxes that do not overlap.
    """

    def __init__(self, source: Source, column: AskedColumn, event: Sequence[Box]) -> None:
        self.source, self.column, self.event = source, column, event
        #: How much lies in the event.
        self.whole = source.measure([event])[0]
        self._numbers: Numbers | None = None

    @property
    def values(self) -> tuple[Any, ...]:
        """All values that the column may have, in order; none where these are not finitely many."""
        if self.column.values:
            return self.column.values
        pieces = self._pieces()
        if not all(piece.is_point for piece in pieces):
            return ()
        return tuple(sorted({piece.lower for piece in pieces}))

    @property
    def numbers(self) -> Numbers | None:
        """The column's numbers by a shorter way than boxes, where the source has one."""
        if self._numbers is None and self.column.has_numbers and self.whole.log > -math.inf:
            self._numbers = self.source.marginal(self.column.name, self.event)
        return self._numbers

    def shares(self, candidates: Sequence[Pieces]) -> np.ndarray:
        """The probability that the column lies in each of several pieces."""
        if self.whole.log == -math.inf:
            raise ValueError("event has probability 0 under the model")
        events = [narrowed(self.event, self.column.name, pieces) for pieces in candidates]
        masses = self.source.measure(events) if events else []
        # One value of a continuous column is nothing next to an interval.
        alike = [mass.log if mass.points == self.whole.points else -math.inf for mass in masses]
        return np.exp(np.array(alike, dtype=np.float64) - self.whole.log)

    def up_to(self, numbers: Sequence[Number]) -> np.ndarray:
        """P(X ≤ x) of each number."""
        return self.shares([(Interval(upper=number),) for number in numbers])

    def beyond(self, numbers: Sequence[Number]) -> np.ndarray:
        """P(X > x) of each number, to as many digits where it is small."""
        return self.shares([(Interval(number, closed_lower=False),) for number in numbers])

    def ends(self, tail: float) -> tuple[Number, Number]:
        """Finite numbers that the column lies between, but for so much at either side."""
        lower, upper = self._bounds()
        start = next((end for end in (lower, upper) if math.isfinite(end)), 0.0)
        if math.isinf(upper):
            candidates = [start + width for width in _WIDTHS]
            upper = _first(candidates, self.beyond(candidates) <= tail)
        if math.isinf(lower):
            candidates = [start - width for width in _WIDTHS]
            lower = _first(candidates, self.up_to(candidates) <= tail)
        return lower, upper

    def _bounds(self) -> tuple[Number, Number]:
        """What column and event leave, which may be infinite."""
        pieces = self._pieces()
        lower, upper = min(piece.lower for piece in pieces), max(piece.upper for piece in pieces)
        return max(lower, self.column.lower), min(upper, self.column.upper)

    def _pieces(self) -> list[Interval]:
        """All intervals that the event leaves to the column, which may overlap."""
        pieces = (piece for box in self.event for piece in box.get(self.column.name, (Interval(),)))
        return [piece for piece in pieces if isinstance(piece, Interval)]


def _first(candidates: Sequence[Number], fits: np.ndarray) -> Number:
    return candidates[int(fits.argmax())] if fits.any() else candidates[-1]
