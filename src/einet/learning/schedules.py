"""Step sizes that change in the course of training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from einet._checks import as_number

__all__ = ["Schedule", "cosine", "exponential", "linear"]

#: From progress in [0, 1] (0 at the first step, 1 at the last) to a step size.
Schedule = Callable[[float], float]


def linear(start: float, end: float) -> Schedule:
    """A straight line from ``start`` to ``end``.

    Args:
        start: λ at the start.
        end: λ at the end.

    Example:
        >>> linear(0.5, 0.1)(0.5)
        0.3
    """
    start, end = _ends(start, end)
    return lambda progress: start + (end - start) * progress


def exponential(start: float, end: float) -> Schedule:
    """A geometric decay from ``start`` to ``end``.

    Args:
        start: λ at the start.
        end: λ at the end.

    Example:
        >>> exponential(1.0, 0.01)(0.5)
        0.1
    """
    start, end = _ends(start, end)
    return lambda progress: start * (end / start) ** progress


def cosine(start: float, end: float) -> Schedule:
    """Half a cosine wave from ``start`` to ``end``: slow, fast, slow.

    Args:
        start: λ at the start.
        end: λ at the end.

    Example:
        >>> round(cosine(0.5, 0.1)(0.5), 6)
        0.3
    """
    start, end = _ends(start, end)
    return lambda progress: end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress))


def _ends(start: Any, end: Any) -> tuple[float, float]:
    """Both ends of a schedule, checked: a training that is halfway through must not learn of it."""
    return (
        as_number("start", start, above=0, at_most=1),
        as_number("end", end, above=0, at_most=1),
    )
