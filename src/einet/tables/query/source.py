"""What questions are asked of: anything that knows the probabilities of boxes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from einet.tables.constraints import Box
from einet.tables.query.columns import AskedColumns

__all__ = ["NOTHING", "Mass", "Numbers", "Source", "total"]


class Mass(NamedTuple):
    """How much lies in an event.

    A value of a continuous column has no probability but a density. Next to a probability it is
    nothing, however large; only events of as many such values can be compared.

    Attributes:
        points: The number of continuous columns that are held at one value.
        log: The log-probability, or log-density in these columns.

    Example:
        >>> half = Mass(points=0, log=math.log(0.5))
        >>> total([half, Mass(points=1, log=7.0)]) == half  # one value of a density adds nothing
        True
    """

    points: int
    log: float


#: What lies in an event that cannot happen.
NOTHING = Mass(0, -math.inf)


def total(masses: Iterable[Mass]) -> Mass:
    """What lies in events that do not overlap, taken together.

    >>> total([Mass(0, math.log(0.25)), Mass(0, math.log(0.25)), Mass(1, 5.0)])
    Mass(points=0, log=-0.693...)
    """
    possible = [mass for mass in masses if mass.log > -math.inf]
    if not possible:
        return NOTHING
    points = min(mass.points for mass in possible)
    logs = np.array([mass.log for mass in possible if mass.points == points])
    return Mass(points, float(np.logaddexp.reduce(logs)))


class Numbers(ABC):
    """The distribution of a column of numbers."""

    @abstractmethod
    def mean(self) -> float:
        """Its mean."""

    @abstractmethod
    def quantile(self, share: float) -> float:
        """The smallest number that it does not exceed with such a probability, or a larger one."""

    def mode(self) -> float | None:
        """The densest number, where there is a way to it; None otherwise."""
        return None


class Source(ABC):
    """Something that questions can be asked of, such as a model of a table.

    To derive from it, say which columns there are, and how much lies in boxes of them; everything
    else is worked out from these.

    Example:
        >>> from einet.tables import AskedColumn, ask
        >>> class Dice(Source):
        ...     columns = {
        ...         "eyes": AskedColumn("eyes", "category", (1, 2, 3, 4, 5, 6), ordered=True)
        ...     }
        ...
        ...     def measure(self, events):
        ...         def share(box):
        ...             return sum(len(part.values) for part in box["eyes"]) / 6 if box else 1.0
        ...
        ...         return [Mass(0, math.log(sum(map(share, event)))) for event in events]
        >>> print(ask(Dice(), "P(eyes=6 | eyes>=4)"))
        0.333333
        >>> Dice().marginal("eyes", [{}]) is None  # there is no shorter way than by boxes
        True
    """

    @property
    @abstractmethod
    def columns(self) -> AskedColumns:
        """The columns that can be asked for."""

    @abstractmethod
    def measure(self, events: Sequence[Sequence[Box]]) -> list[Mass]:
        """How much lies in each of several events.

        Args:
            events: Each is the union of some boxes that do not overlap.
        """

    def marginal(self, column: str, event: Sequence[Box]) -> Numbers | None:
        """The numbers of a column given an event, where there is a shorter way than by many boxes.

        None where there is not; answers are the same.

        Args:
            column: The name of a column of numbers.
            event: Boxes that do not overlap, with some probability.
        """
        return None
