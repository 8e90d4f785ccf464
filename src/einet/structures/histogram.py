"""How often each of many numbers occurs, on any device."""

from __future__ import annotations

import torch
from jaxtyping import Int32, Int64, Shaped
from torch import Tensor

__all__ = ["histogram"]


def histogram(
    numbers: Int32[Tensor, "rows columns"],
    count: int,
    weights: Shaped[Tensor, "rows columns"] | None = None,
) -> Shaped[Tensor, " count"]:
    """How often each number from 0 to ``count − 1`` occurs.

    A GPU adds in no order that could be relied on, and finds the same nevertheless: it adds whole
    numbers. Weights are multiplied by a power of two for that, and rounded 2⁻⁶² below their sum.

    Args:
        numbers: What is counted.
        count: How many numbers there are.
        weights: How often each entry counts; once by default.

    Returns:
        Whole numbers, or float64 where there are weights.

    Example:
        >>> histogram(torch.tensor([[0, 2], [2, 2]], dtype=torch.int32), 4)
        tensor([1, 0, 3, 0])
    """
    if numbers.device.type != "cpu":
        return _scattered(numbers.flatten().long(), count, weights)
    # Of 32 bits, which it reads faster than 64. Nothing faster was found for a CPU.
    if weights is None:
        return torch.bincount(numbers.flatten(), minlength=count)
    # Of no entries at all it finds whole numbers, with weights or without.
    return torch.bincount(numbers.flatten(), weights.double().flatten(), minlength=count).double()


def _scattered(
    numbers: Int64[Tensor, " entries"], count: int, weights: Shaped[Tensor, "rows columns"] | None
) -> Shaped[Tensor, " count"]:
    if weights is None:
        result = torch.zeros(count, dtype=torch.int32, device=numbers.device)
        once = torch.ones(1, dtype=torch.int32, device=numbers.device)
        return result.scatter_add_(0, numbers, once.expand(len(numbers)))
    weights = weights.double().flatten()
    exponent = 61 - torch.frexp(weights.sum()).exponent
    whole = torch.ldexp(weights, exponent).round().long()
    result = torch.zeros(count, dtype=torch.int64, device=numbers.device)
    result.scatter_add_(0, numbers, whole)
    return torch.ldexp(result.double(), -exponent)
