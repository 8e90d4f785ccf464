"""Checks that all rooms share: of arguments, and of packages that an extra installs."""

import math
import operator
from typing import Any

__all__ = ["as_int", "as_smoothing", "missing_package"]


def as_int(name: str, value: Any, minimum: int) -> int:
    """The argument ``name`` as a plain ``int``; it must be an integer of at least ``minimum``.

    Integers of other libraries are taken, ``bool`` and floats are not.

    >>> as_int("depth", 3, minimum=0)
    3
    """
    message = f"{name} must be an integer >= {minimum}, got {value!r}"
    if isinstance(value, bool):
        raise TypeError(message)
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(message) from None
    if number < minimum:
        raise ValueError(message)
    return number


def as_smoothing(value: Any) -> float:
    """A pseudo-count: a finite number of at least 0."""
    message = f"smoothing must be a number >= 0, got {value!r}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(message)
    if not 0 <= value < math.inf:
        raise ValueError(message)
    return float(value)


def missing_package(package: str, what: str, extra: str) -> ImportError:
    """What to raise where a package that ``einet[extra]`` installs is not there.

    >>> missing_package("pillow", "writing PNG files", "images")
    ImportError("writing PNG files needs the package pillow, ...: pip install 'einet[images]'")
    """
    return ImportError(
        f"{what} needs the package {package}, which is not installed: pip install 'einet[{extra}]'"
    )
