"""Plain values out of a file: each is what it must be, or named in an error."""

from __future__ import annotations

import math
from collections.abc import Collection
from reprlib import repr as shortened
from typing import Any

__all__ = ["as_count", "as_fields", "as_flag", "as_list", "as_number"]


def as_fields(value: Any, name: str, fields: Collection[str]) -> dict[str, Any]:
    """An object with these fields and no others.

    Example:
        >>> as_fields({"done": 3}, "loop", ["done"])
        {'done': 3}
    """
    if not isinstance(value, dict) or set(value) != set(fields):
        got = sorted(value) if isinstance(value, dict) else value
        raise ValueError(f"{name} must have the fields {', '.join(fields)}, got {shortened(got)}")
    return value


def as_count(value: Any, name: str, least: int, most: int) -> int:
    """A whole number between two others.

    Example:
        >>> as_count(10**9, "done", 0, 3)
        Traceback (most recent call last):
        ValueError: done must be a whole number from 0 to 3, got 1000000000
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(
            f"{name} must be a whole number from {least} to {most}, got {shortened(value)}"
        )
    return value


def as_number(value: Any, name: str, least: float = -math.inf) -> float:
    """A number of at least ``least``: neither NaN nor +∞, and −∞ only where ``least`` is.

    Example:
        >>> as_number(0.5, "seconds", least=0.0)
        0.5
    """
    right = isinstance(value, int | float) and not isinstance(value, bool)
    if not right or not least <= value < math.inf:
        at_least = "" if least == -math.inf else f" of at least {least:g}"
        raise ValueError(f"{name} must be a number{at_least}, got {shortened(value)}")
    return float(value)


def as_flag(value: Any, name: str) -> bool:
    """True or False.

    Example:
        >>> as_flag(True, "waiting")
        True
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {shortened(value)}")
    return value


def as_list(value: Any, name: str, lengths: Collection[int] | None = None) -> list[Any]:
    """A list, of one of these lengths where they are given.

    Example:
        >>> as_list([1, 2], "train", lengths=[2])
        [1, 2]
    """
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, got {shortened(value)}")
    if lengths is not None and len(value) not in lengths:
        allowed = (
            " or ".join(map(str, sorted(set(lengths))))
            if len(lengths) < 5
            else (f"{min(lengths)} to {max(lengths)}")
        )
        raise ValueError(f"{name} must have {allowed} entries, got {len(value)}")
    return value
