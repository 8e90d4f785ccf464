"""Mutual information of every pair of discrete variables, from data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._checks import as_smoothing
from einet._memory import fitting
from einet.data.batch import Batch
from einet.structures.arguments import as_rows

__all__ = ["as_discrete", "mutual_information"]

_MOST_STATES = 256
# Of one-hot columns in a block of variables.
_BLOCK_COLUMNS = 1024


@torch.no_grad()
def mutual_information(
    data: Any, observed: Any = None, *, weights: Any = None, smoothing: float = 1.0
) -> Float[Tensor, "variables variables"]:
    r"""The smoothed mutual information of every pair of discrete variables, in nats.

    .. math:: I(u, v) = \sum_{a, b} p(a, b) \log \frac{p(a, b)}{p(a)\, p(b)}, \quad
              p(a, b) = \frac{n_{ab} + \alpha / (C_u C_v)}{n + \alpha}

    Variable u has the states 0 to :math:`C_u - 1`, where the last is the largest value seen; a
    pair is counted over the rows in which both are known. The counts are matrix products of
    one-hot blocks, on the data's device: the time grows with rows · (variables · states)².

    Args:
        data: Whole numbers ``[rows, variables]`` from 0 to at most 255; NaN where missing.
        observed: A mask, True where a cell is known (for integer data).
        weights: How often each row counts; once by default.
        smoothing: α, the pseudo-count spread evenly over the states of each pair, at least 0.

    Returns:
        A symmetric matrix (float64, on the data's device) with 0 on its diagonal.

    Example:
        >>> mutual_information([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]], smoothing=0.0)
        tensor([[0.0000, 0.6931, 0.0000],
                [0.6931, 0.0000, 0.0000],
                [0.0000, 0.0000, 0.0000]], dtype=torch.float64)
    """
    smoothing = as_smoothing(smoothing)
    batch = as_discrete(data, observed, weights)
    x, states = batch.x, _states(batch)
    width = int(states.max())
    variables = x.shape[1]
    step = max(1, _BLOCK_COLUMNS // width)
    blocks = [slice(start, min(start + step, variables)) for start in range(0, variables, step)]
    result = torch.zeros(variables, variables, dtype=torch.float64, device=x.device)
    for number, first in enumerate(blocks):
        for second in blocks[number:]:
            joint = _joint_counts(batch, first, second, width)
            # Only states that exist share the pseudo-counts.
            exists = torch.arange(width, device=x.device) < states.unsqueeze(-1)
            share = exists / states.unsqueeze(-1)
            joint += smoothing * share[first][:, :, None, None] * share[second]
            result[first, second] = _information(joint)
    # Below zero there is only rounding, and it differs on the two sides of the diagonal.
    result = result.clamp_(min=0).triu_(1)
    return result + result.T


def as_discrete(data: Any, observed: Any, weights: Any) -> Batch:
    """Check discrete data, and keep it as bytes; missing cells are 0."""
    batch = as_rows(data, observed, weights)
    x = batch.x
    wrong = (x < 0) | (x > _MOST_STATES - 1) | (x != x.round() if x.is_floating_point() else False)
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"data must hold whole numbers from 0 to {_MOST_STATES - 1}, but data[{row}, {column}] "
            f"is {x[row, column].item():g}; put other variables into bins, or go by correlations "
            'with information="gaussian"'
        )
    return Batch(x.to(torch.uint8), batch.observed, weights=batch.weights)


def _states(batch: Batch) -> Int[Tensor, " variables"]:
    return batch.x.amax(0).long() + 1


def _joint_counts(
    batch: Batch, first: slice, second: slice, width: int
) -> Float[Tensor, "first width second width"]:
    """n_ab of every pair of variables out of two blocks."""
    # Sums of whole numbers are exact in float32 up to 2²⁴, far beyond the rows of one block.
    weights = batch.weights
    whole = weights is None or bool((weights == weights.round()).all() and weights.max() < 256)
    dtype = torch.float32 if whole else torch.float64
    shapes = [(part.stop - part.start, width) for part in (first, second)]
    total = torch.zeros(*shapes[0], *shapes[1], dtype=torch.float64, device=batch.x.device)
    for rows in _row_blocks(len(batch), max(math.prod(shape) for shape in shapes)):
        part = batch[rows]
        left = _one_hot(part, first, width, dtype)
        right = left if first == second else _one_hot(part, second, width, dtype)
        if part.weights is not None:
            left = left * part.weights.to(dtype).unsqueeze(-1)
        total += (left.T @ right).view_as(total)
    return total


def _row_blocks(rows: int, columns: int) -> Iterator[slice]:
    step = min(1 << 16, fitting("one-hot rows", 8 * columns))
    return (slice(start, start + step) for start in range(0, rows, step))


def _one_hot(
    batch: Batch, variables: slice, width: int, dtype: torch.dtype
) -> Float[Tensor, "rows columns"]:
    """One column for each state of each variable; a missing cell is 0 in all of them."""
    x = batch.x[:, variables].unsqueeze(-1)
    hot = x == torch.arange(width, dtype=torch.uint8, device=x.device)
    if batch.observed is not None:
        hot &= batch.observed[:, variables].unsqueeze(-1)
    return hot.flatten(1).to(dtype)


def _information(
    joint: Float[Tensor, "first width second width"],
) -> Float[Tensor, "first second"]:
    """The mutual information of counts; 0 for a pair that was never seen."""
    count = joint.sum((1, 3))
    terms = _xlogx(joint).sum((1, 3)) - _xlogx(joint.sum(3)).sum(1) - _xlogx(joint.sum(1)).sum(-1)
    count = torch.where(count > 0, count, 1.0)
    return terms / count + count.log()


def _xlogx(x: Tensor) -> Tensor:
    return torch.special.xlogy(x, x)
