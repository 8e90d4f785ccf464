"""Checks that all rooms share: of arguments, and of packages that an extra installs."""

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "as_device",
    "as_int",
    "as_number",
    "as_seed",
    "as_smoothing",
    "as_step_size",
    "check_choice",
    "check_flag",
    "missing_package",
    "shown",
]

# What torch's generators take, and what stays positive in 64 bits with a sign.
_SEEDS = 1 << 63


def as_int(name: str, value: Any, minimum: int) -> int:
    """The argument ``name`` as a plain ``int``; it must be an integer of at least ``minimum``.

    Integers of other libraries are taken, ``bool`` and floats are not.

    >>> as_int("depth", 3, minimum=0)
    3
    """
    message = f"{name} must be an integer >= {minimum}, got {shown(value)}"
    if isinstance(value, bool):
        raise TypeError(message)
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(message) from None
    if number < minimum:
        raise ValueError(message)
    return number


def as_number(
    name: str,
    value: Any,
    *,
    at_least: float | int | None = None,
    above: float | int | None = None,
    at_most: float | int = math.inf,
) -> float:
    """The argument ``name`` as a plain ``float``: a finite number within bounds.

    Numbers of other libraries are taken; ``bool`` and text are not.

    >>> as_number("smoothing", 1, at_least=0)
    1.0
    """
    rules = [] if at_least is None else [f" >= {at_least:g}"]
    rules += [] if above is None else [f" > {above:g}"]
    rules += [] if at_most == math.inf else [f" <= {at_most:g}"]
    message = f"{name} must be a number{' and'.join(rules)}, got {shown(value)}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(message)
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(message) from None
    inside = math.isfinite(number) and number <= at_most
    inside = inside and (at_least is None or number >= at_least)
    if not inside or (above is not None and number <= above):
        raise ValueError(message)
    return number


def as_smoothing(value: Any) -> float:
    """A pseudo-count: a finite number of at least 0."""
    return as_number("smoothing", value, at_least=0)


def as_seed(value: Any, name: str = "seed") -> int:
    """A seed of random numbers: an integer of at least 0 that 63 bits can hold.

    >>> as_seed(7)
    7
    """
    number = as_int(name, value, minimum=0)
    if number >= _SEEDS:
        raise ValueError(f"{name} must be an integer below 2**63, got {shown(value)}")
    return number


def as_device(device: Any) -> torch.device:
    """A device that a model can be moved to."""
    try:
        return torch.empty(0, device=device).device
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        raise ValueError(
            "device must be one that torch has here, such as 'cpu' or 'cuda', got "
            f"{shown(device)}: {str(error).splitlines()[0]}"
        ) from error


def as_step_size(value: Any) -> float | Tensor:
    """λ of an EM step: a number above 0 and at most 1, or a tensor that holds one.

    A tensor on a GPU is not waited for: nobody looks at its value.

    >>> as_step_size(1)
    1.0
    """
    allowed = "step_size must lie in (0, 1], got"
    if isinstance(value, Tensor):
        if value.ndim != 0 or not value.is_floating_point():
            raise TypeError(
                f"step_size must be a number or a floating tensor of shape [], got {value.dtype} "
                f"of shape {list(value.shape)}"
            )
        # Showing a value is waiting for it, too.
        if value.device.type == "cpu" and not 0 < value.item() <= 1:
            raise ValueError(f"{allowed} {shown(value)}")
        return value.detach()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{allowed} {shown(value)}")
    if not 0 < value <= 1:
        raise ValueError(f"{allowed} {shown(value)}")
    return float(value)


def check_flag(name: str, value: Any) -> None:
    """Raise unless the argument ``name`` is True or False: text such as "no" would count as True.

    >>> check_flag("resume", False)
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Raise unless the argument ``name`` is one of some words.

    >>> check_choice("leaves", "mean", ("sample", "mean"))
    """
    if not isinstance(value, str) or value not in allowed:
        words = ", ".join(map(repr, allowed))
        words = words if len(allowed) != 2 else " or ".join(map(repr, allowed))
        start = "one of " if len(allowed) > 2 else ""
        raise ValueError(f"{name} must be {start}{words}, got {shown(value)}")


def shown(value: Any) -> str:
    """What was given, for an error that can be read: cut where it is long.

    >>> shown([1, 2])
    '[1, 2]'
    """
    try:
        text = repr(value)
    except ValueError:
        # Python refuses to write out integers of thousands of digits.
        return f"an {type(value).__name__} of many digits"
    return text if len(text) <= 200 else f"{text[:200]}…"


def missing_package(package: str, what: str, extra: str) -> ImportError:
    """What to raise where a package that ``einet[extra]`` installs is not there.

    >>> missing_package("pillow", "writing PNG files", "images")
    ImportError("writing PNG files needs the package pillow, ...: pip install 'einet[images]'")
    """
    return ImportError(
        f"{what} needs the package {package}, which is not installed: pip install 'einet[{extra}]'"
    )
