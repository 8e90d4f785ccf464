"""What belongs to rows beside their cells: the class of each, and how often it counts."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.data.arrays import Given, as_given

__all__ = ["as_labels", "as_weights", "labels_of", "weights_of"]

# Weights count rows. Beyond 2⁵³ float64 cannot tell one row more or less, and far beyond their sums
# are infinite; and where even the largest is tiny, float32 statistics are 0.
_MOST_WEIGHT, _LEAST_WEIGHT = float(1 << 53), 1e-12


def as_labels(
    labels: Any, rows: int, num_classes: int, *, name: str = "labels"
) -> Int[Tensor, " rows"]:
    """Check class labels: whole numbers from 0 to C − 1; −1 for unknown, as missing ones are.

    Args:
        labels: The class of each row; missing, or −1, where unknown.
        rows: How many rows there are.
        num_classes: How many classes there are.
        name: What errors call the labels.

    Example:
        >>> as_labels([2, None, 0, -1], rows=4, num_classes=3)
        tensor([ 2, -1,  0, -1])
    """
    return labels_of(as_given(labels, name), rows, num_classes, name)


def labels_of(given: Given, rows: int, num_classes: int, name: str) -> Int[Tensor, " rows"]:
    """The same for labels that have been read."""
    tensor = given.values
    if tensor.shape != (rows,):
        raise ValueError(f"{name} must have shape [{rows}], got {list(tensor.shape)}")
    if tensor.is_floating_point():
        tensor = torch.where(tensor.isnan(), -1, tensor)
        if not bool((tensor == tensor.round()).all()):
            raise ValueError(f"{name} must be whole numbers (−1 for unknown), got fractions")
    elif given.known is not None:
        tensor = torch.where(given.known, tensor.long(), -1)
    # Before they become integers, in which floats too large for one would be any number.
    low, high = (tensor.min().item(), tensor.max().item()) if rows else (0, 0)
    if low < -1 or high >= num_classes:
        raise ValueError(
            f"{name} must lie between 0 and {num_classes - 1} (or be −1 for unknown), "
            f"got {low:g} to {high:g}"
        )
    return tensor.long()


def as_weights(weights: Any, rows: int, *, name: str = "weights") -> Float[Tensor, " rows"]:
    """Check sample weights: finite, not negative, and of a sum that float64 counts exactly.

    Args:
        weights: How often each row counts.
        rows: How many rows there are.
        name: What errors call the weights.

    Example:
        >>> as_weights([1, 0, 2.5], rows=3)
        tensor([1.0000, 0.0000, 2.5000], dtype=torch.float64)
    """
    return weights_of(as_given(weights, name), rows, name, allow_zero=True)


def weights_of(given: Given, rows: int, name: str, allow_zero: bool) -> Float[Tensor, " rows"]:
    """The same for weights that have been read; ``allow_zero`` lets no row count."""
    if given.known is not None:
        raise ValueError(f"{name} must be known in every row, got missing ones")
    tensor = given.values.double()
    if tensor.shape != (rows,):
        raise ValueError(f"{name} must have shape [{rows}], got {list(tensor.shape)}")
    if not bool((tensor.isfinite() & (tensor >= 0)).all()):
        raise ValueError(f"{name} must be finite and not negative")
    total, most = (tensor.sum().item(), tensor.max().item()) if rows else (0.0, 0.0)
    if total > _MOST_WEIGHT:
        raise ValueError(
            f"{name} must add up to at most 2**53, beyond which sums over rows lose their digits "
            f"and then overflow, got {total:g}; divide them all by the same number"
        )
    if 0 < most < _LEAST_WEIGHT:
        raise ValueError(
            f"{name} must be at least {_LEAST_WEIGHT:g} somewhere, for sums over rows not to "
            f"vanish, got {most:g} at most; multiply them all by the same number"
        )
    if rows and most == 0 and not allow_zero:
        raise ValueError(f"{name} must not be 0 throughout")
    return tensor
