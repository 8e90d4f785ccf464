r"""Quantiles of a column given an event: the smallest :math:`x` with :math:`P(X \le x) \ge q`.

They are found from probabilities of boxes alone, so they are exact whatever the column is made of:
spikes, integers, categories with an order. Many candidates are asked for at once, which shrinks
where the quantile may lie by the same factor each time, down to neighbouring numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from einet.tables.constraints import Interval, Pieces, Values
from einet.tables.query.conditional import Conditional, Number, multiple

__all__ = ["quantile"]

# Candidates of a round, and rounds: 32ⁿ is beyond all floats long before that.
_CANDIDATES, _MOST_ROUNDS = 32, 250
# Next to it, the rounding of sums of probabilities counts for nothing.
_TOLERANCE = 1e-12


def quantile(known: Conditional, share: float) -> Any:
    """The quantile of a column that has numbers, or values with an order.

    Args:
        known: The column, given an event.
        share: Which quantile, above 0 and below 1.
    """
    column, values = known.column, known.values
    if values:
        reached = known.shares([_firsts(known, values[: end + 1]) for end in range(len(values))])
        return values[_first(reached, share)]
    if known.numbers is not None:
        return known.numbers.quantile(share)
    if column.spikes:
        below: list[Pieces] = [
            (Interval(upper=spike, closed_upper=False),) for spike in column.spikes
        ]
        reached = zip(column.spikes, known.shares(below), known.up_to(column.spikes), strict=True)
        for spike, before, with_it in reached:
            if before < share * (1 - _TOLERANCE) <= with_it:
                return spike
    # What is beyond the ends is less than what the quantile leaves on its side.
    lower, upper = known.ends(min(share, 1 - share) / 2)
    if column.step is None:
        return _between(known, lower, upper, share)
    first, last = math.floor(lower / column.step), math.ceil(upper / column.step)
    return _on_grid(known, first, last, share)


def _firsts(known: Conditional, values: tuple[Any, ...]) -> Pieces:
    """The pieces of the first values of a column."""
    return (Interval(upper=values[-1]) if known.column.has_numbers else Values(values),)


def _first(reached: np.ndarray, share: float) -> int:
    """The first candidate that reaches the share; the last where rounding keeps all below it."""
    enough = reached >= share * (1 - _TOLERANCE)
    return int(enough.argmax()) if enough.any() else len(reached) - 1


def _between(known: Conditional, lower: Number, upper: Number, share: float) -> float:
    """The quantile between two numbers, to the last digit that sums of probabilities have."""
    for _ in range(_MOST_ROUNDS):
        spread = np.linspace(0, 1, _CANDIDATES + 1)[1:-1]
        # Not the difference of the ends, which may be too large to be held.
        inside = {float(lower * (1 - part) + upper * part) for part in spread}
        candidates = [*sorted(number for number in inside if lower < number < upper), upper]
        if len(candidates) == 1 or upper - lower <= 1e-15 * max(abs(lower), abs(upper)):
            break
        place = _first(known.up_to(candidates), share)
        lower, upper = (candidates[place - 1] if place else lower), candidates[place]
    return float(upper)


def _on_grid(known: Conditional, first: int, last: int, share: float) -> Number:
    """The quantile among multiples of a step."""
    assert known.column.step is not None
    at = multiple(known.column.step)
    lower, upper = first - 1, last
    while upper - lower > 1:
        spread = {lower + (upper - lower) * part // _CANDIDATES for part in range(1, _CANDIDATES)}
        candidates = [*sorted(number for number in spread if lower < number < upper), upper]
        place = _first(known.up_to([at(number) for number in candidates]), share)
        lower, upper = (candidates[place - 1] if place else lower), candidates[place]
    return at(upper)
