"""Reading a family's hyper-parameters: a number, a sequence or a tensor, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from einet._checks import shown

__all__ = ["Limits", "Numbers", "as_hyper", "check_lengths", "check_limits", "check_order"]

#: What users may give for a hyper-parameter: one number, or one number a variable.
Numbers: TypeAlias = float | int | np.number | Sequence[float | int] | np.ndarray | Tensor
#: What :func:`as_hyper` is told of each hyper-parameter, by name.
Limits: TypeAlias = Mapping[str, Mapping[str, Any]]


def as_hyper(
    name: str,
    value: Numbers | None,
    *,
    above: float | int | None = None,
    at_least: float | int | None = None,
    below: float | int | None = None,
    at_most: float | int | None = None,
    integer: bool = False,
    absent: float | int | None = None,
) -> Tensor:
    """``value`` as a float64 tensor of shape ``[]`` or ``[variables]``, or an error naming it.

    Args:
        name: The argument's name, for messages.
        value: What the user gave; ``None`` gives ``absent`` where that is allowed.
        above, at_least, below, at_most: Open and closed bounds.
        integer: Whether only whole numbers are allowed.
        absent: The number that stands for ``None``.

    Example:
        >>> as_hyper("n", [1, 4], at_least=1, integer=True)
        tensor([1., 4.], dtype=torch.float64)
    """
    if value is None:
        if absent is None:
            raise ValueError(f"{name} is required")
        return torch.tensor(absent, dtype=torch.float64)
    if _is_odd(value):
        raise TypeError(f"{name} must be a number or a sequence of numbers, got {shown(value)}")
    try:
        # Straight to float64: numbers such as 1e-50 or 2**32 - 1.0 do not survive float32.
        kind = torch.float64
        is_tensor = isinstance(value, Tensor)
        tensor = (
            value.detach().to(kind, copy=True) if is_tensor else torch.tensor(value, dtype=kind)
        )
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(
            f"{name} must be a number or a sequence of numbers, got {type(value).__name__}: {error}"
        ) from error
    if tensor.ndim > 1 or tensor.numel() == 0:
        raise ValueError(
            f"{name} must be one number or one number a variable, got shape {tuple(tensor.shape)}"
        )
    rules = [(~tensor.isnan(), "not NaN")]
    if above is not None:
        rules.append((tensor > above, f"greater than {above:g}"))
    if at_least is not None:
        rules.append((tensor >= at_least, f"at least {at_least:g}"))
    if below is not None:
        rules.append((tensor < below, f"less than {below:g}"))
    if at_most is not None:
        rules.append((tensor <= at_most, f"at most {at_most:g}"))
    if integer:
        rules.append((tensor.isfinite() & (tensor == tensor.round()), "a whole number"))
    for satisfied, rule in rules:
        if not bool(satisfied.all()):
            bad = tensor.reshape(-1)[~satisfied.reshape(-1)][0].item()
            raise ValueError(f"{name} must be {rule}, got {bad:g}")
    return tensor


def check_limits(values: Mapping[str, Tensor], limits: Limits) -> None:
    """Raise unless hyper-parameters that no user gave, but a file, are within their limits.

    Example:
        >>> check_limits({"n": torch.tensor([3.0])}, {"n": {"at_least": 1, "integer": True}})
    """
    for name, limit in limits.items():
        value, absent = values[name], limit.get("absent")
        if absent is not None and math.isnan(absent):
            value = value[~value.isnan()]
        if value.numel():
            as_hyper(name, value, **limit)


def _is_odd(value: object) -> bool:
    """Whether torch would make another number of this, or none that was meant."""
    if isinstance(value, bool | complex | str | bytes):
        return True
    if isinstance(value, Tensor):
        return value.dtype == torch.bool or value.is_complex() or value.layout != torch.strided
    if isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any()):
        return True
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind not in "iuf"
    return isinstance(value, Sequence) and any(map(_is_odd, value))


def check_lengths(**values: Tensor) -> None:
    """Raise unless the hyper-parameters with one number a variable agree on how many there are.

    Example:
        >>> check_lengths(n=torch.ones(3), min_probability=torch.ones(()))
    """
    lengths = {name: value.shape[0] for name, value in values.items() if value.ndim == 1}
    if len(set(lengths.values())) > 1:
        given = " and ".join(f"{length} for {name}" for name, length in lengths.items())
        raise ValueError(f"{', '.join(lengths)} must be of one length, got {given}")


def check_order(low_name: str, low: Tensor, high_name: str, high: Tensor) -> None:
    """Raise unless ``low <= high`` wherever both are given.

    Example:
        >>> check_order("min_variance", torch.tensor(1.0), "max_variance", torch.tensor(2.0))
    """
    check_lengths(**{low_name: low, high_name: high})
    wrong = low > high
    if bool(wrong.any()):
        least, most = (bound.expand(wrong.shape)[wrong][0].item() for bound in (low, high))
        raise ValueError(
            f"{high_name} must not be below {low_name}, "
            f"got {high_name}={most:g} and {low_name}={least:g}"
        )
