"""Checks of arguments that the structures share."""

import math
import operator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from einet.data.batch import Batch, as_batch

__all__ = ["as_int", "as_rows", "as_smoothing"]


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


def as_rows(data: Any, observed: Any, weights: Any) -> Batch:
    """Data to learn a structure from, with any number of columns; missing cells are 0."""
    shape = data.x.shape if isinstance(data, Batch) else np.shape(data)
    if len(shape) != 2 or shape[1] == 0:
        raise ValueError(f"data must have shape [rows, variables], got {list(shape)}")
    options = {"name": "data", "allow_empty": False}
    batch = as_batch(data, shape[1], observed, weights=weights, **options)
    if batch.observed is None:
        return batch
    return replace(batch, x=torch.where(batch.observed, batch.x, 0))
