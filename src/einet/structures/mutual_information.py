"""Mutual information of every pair of discrete variables, from data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._checks import as_smoothing
from einet.data.batch import Batch
from einet.structures.arguments import as_rows
from einet.structures.levels import MOST_LEVELS, as_levels, equal_frequency, sensible_levels
from einet.structures.pair_counts import pair_counts

__all__ = ["as_discrete", "mutual_information"]

# Rows that count a whole number of times are repeated if there are so many times more then.
_MOST_REPEATED = 2


@torch.no_grad()
def mutual_information(
    data: Any,
    observed: Any = None,
    *,
    levels: int | str | None = None,
    weights: Any = None,
    smoothing: float = 1.0,
) -> Float[Tensor, "variables variables"]:
    r"""The smoothed mutual information of every pair of discrete variables, in nats.

    .. math:: I(u, v) = \sum_{a, b} p(a, b) \log \frac{p(a, b)}{p(a)\, p(b)}, \quad
              p(a, b) = \frac{n_{ab} + \alpha / (C_u C_v)}{n + \alpha}

    Variable u has the states 0 to :math:`C_u - 1`, where the last is the largest value seen; a
    pair is counted over the rows in which both are known. Counts are exact, on the data's device;
    nothing is kept of them, so that the memory does not grow with the states. Of few states they
    are products of one-hot matrices, in a time that grows with rows · (variables · states)²; of
    many it grows with (rows + states²) · variables².

    Args:
        data: Whole numbers ``[rows, variables]`` from 0 to at most 255, or numbers of any kind if
            there is a number of levels; NaN where missing.
        observed: A mask, True where a cell is known (for integer data).
        levels: The most states of a variable: neighbouring values of one that has more are counted
            as one, in levels of about equal frequency (:func:`equal_frequency`). That takes an
            order of the values; what the levels tell is never more than what all states would.
            ``"auto"`` for as many as the rows can tell apart, 64 rows to each cell of the table of
            a pair, but at least 16. None for all states.
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
    batch = _repeated(as_discrete(data, observed, weights, levels))
    states = _states(batch)
    width, variables = int(states.max()), batch.x.shape[1]
    # Only states that exist share the pseudo-counts.
    exists = torch.arange(width, device=states.device) < states.unsqueeze(-1)
    share = exists / states.double().unsqueeze(-1)
    result = torch.zeros(variables, variables, dtype=torch.float64, device=states.device)
    for first, second, joint in pair_counts(batch, width):
        joint += smoothing * share[first][:, :, None, None] * share[second]
        result[first, second] = _information(joint)
    # Below zero there is only rounding, and it differs on the two sides of the diagonal.
    result = result.clamp_(min=0).triu_(1)
    return result + result.T


def as_discrete(data: Any, observed: Any, weights: Any, levels: Any = None) -> Batch:
    """Check discrete data, and keep them as bytes, in levels if they shall; missing cells are 0."""
    levels = as_levels(levels)
    batch = as_rows(data, observed, weights)
    if isinstance(levels, int):
        return equal_frequency(batch, levels=levels)
    x = batch.x
    wrong = (x < 0) | (x > MOST_LEVELS - 1) | (x != x.round() if x.is_floating_point() else False)
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"data must hold whole numbers from 0 to {MOST_LEVELS - 1}, but data[{row}, {column}] "
            f"is {x[row, column].item():g}; put other variables into bins by a number of levels, "
            'such as levels=16, or go by correlations with information="gaussian"'
        )
    batch = Batch(x.to(torch.uint8), batch.observed, weights=batch.weights)
    if levels is None or int(_states(batch).max()) <= sensible_levels(len(batch)):
        return batch
    return equal_frequency(batch, levels=sensible_levels(len(batch)))


def _repeated(batch: Batch) -> Batch:
    """The same with rows repeated in place of weights, where these are small whole numbers."""
    weights = batch.weights
    if weights is None or not bool((weights == weights.round()).all()):
        return batch
    if float(weights.sum()) > _MOST_REPEATED * len(batch):
        return batch
    rows = torch.arange(len(batch), device=weights.device).repeat_interleave(weights.long())
    return replace(batch, weights=None)[rows]


def _states(batch: Batch) -> Int[Tensor, " variables"]:
    return batch.x.amax(0).long() + 1


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
