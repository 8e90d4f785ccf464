"""Mutual information of every pair of variables as if they were jointly normal, from data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet._checks import as_smoothing
from einet._memory import chunks
from einet.data.batch import Batch
from einet.structures.arguments import as_rows

__all__ = ["gaussian_information"]

# Of ρ²: a variable that determines another would tell infinitely much about it.
_MOST = 1 - 1e-12
# Variables whose products with all later ones are made together; half of the matrix is enough.
_STRIPE = 512
# What is left of squares after subtracting their mean is rounding below this share of them.
_ROUNDING = 1e-14


@torch.no_grad()
def gaussian_information(
    data: Any, observed: Any = None, *, weights: Any = None, smoothing: float = 1.0
) -> Float[Tensor, "variables variables"]:
    r"""The mutual information of normal variables with the data's correlations, in nats.

    .. math:: I(u, v) = -\tfrac12 \log (1 - \rho_{uv}^2), \quad
              \rho_{uv} = \frac{c_{uv}}{\sqrt{(q_u + \alpha s_u^2)(q_v + \alpha s_v^2)}}

    with c and q the sums of products and squares of deviations over the rows in which u and v are
    both known, and s² the variance of a variable over all rows in which it is known. It is what
    linear dependence tells; unlike counts of states it needs no states, and its time does not grow
    with their number: it grows with rows · variables².

    Args:
        data: Numbers ``[rows, variables]``; NaN where missing.
        observed: A mask, True where a cell is known (for integer data).
        weights: How often each row counts; once by default.
        smoothing: α, a number of further rows in which all variables are independent, at least 0.

    Returns:
        A symmetric matrix (float64, on the data's device) with 0 on its diagonal. Variables that do
        not vary tell nothing.

    Example:
        >>> x = [[0.0, 1.0, 2.0], [1.0, 2.0, 1.0], [2.0, 3.0, 1.0], [3.0, 2.0, 2.0]]
        >>> gaussian_information(x, smoothing=0.0)
        tensor([[0.0000, 0.2554, 0.0000],
                [0.2554, 0.0000, 0.3466],
                [0.0000, 0.3466, 0.0000]], dtype=torch.float64)
    """
    smoothing = as_smoothing(smoothing)
    batch = as_rows(data, observed, weights)
    mean, variance = _moments(batch)
    products, squares = _deviations(batch, mean)
    # Of what does not vary, deviations are rounding.
    squares *= (variance > 0).unsqueeze(1)
    squares = squares + smoothing * variance.unsqueeze(1)
    bound = squares * squares.T
    share = torch.where(bound > 0, products.square() / bound, 0.0).clamp_(max=_MOST)
    result = (-0.5 * torch.log1p(-share)).triu_(1)
    return result + result.T


def _moments(batch: Batch) -> tuple[Float[Tensor, " variables"], Float[Tensor, " variables"]]:
    """Mean and variance of each variable over the rows in which it is known, or else 0."""
    count = torch.zeros(batch.x.shape[1], dtype=torch.float64, device=batch.x.device)
    sums, squares = torch.zeros_like(count), torch.zeros_like(count)
    for x, weight in _blocks(batch):
        count += weight.sum(0)
        sums += (weight * x).sum(0)
    count = torch.where(count > 0, count, 1.0)
    mean = sums / count
    for x, weight in _blocks(batch):
        squares += (weight * (x - mean).square()).sum(0)
    variance = squares / count
    return mean, torch.where(variance > _ROUNDING * mean.square(), variance, 0.0)


def _deviations(
    batch: Batch, mean: Float[Tensor, " variables"]
) -> tuple[Float[Tensor, "variables variables"], Float[Tensor, "variables variables"]]:
    """Sums over common rows: Σ (u − ū)(v − v̄), and Σ (u − ū)² with v for the other of a pair."""
    shape = (len(mean), len(mean))
    products = torch.zeros(shape, dtype=torch.float64, device=mean.device)
    if batch.observed is None:
        for x, weight in _blocks(batch):
            x = x - mean
            _add_upper(products, weight * x, x)
        products = _mirrored(products)
        return products, products.diagonal().unsqueeze(1).expand(shape).contiguous()
    squares, sums, counts = (torch.zeros_like(products) for _ in range(3))
    for x, weight in _blocks(batch):
        known = (weight > 0).double()
        x = (x - mean) * known
        _add_upper(products, weight * x, x)
        _add_upper(counts, weight, known)
        squares += (weight * x.square()).T @ known
        sums += (weight * x).T @ known
    products, counts = _mirrored(products), _mirrored(counts)
    counts = torch.where(counts > 0, counts, 1.0)
    # Means over the common rows of a pair are not those over all rows.
    about_means = squares - sums.square() / counts
    varies = about_means > _ROUNDING * squares
    return products - sums * sums.T / counts, torch.where(varies, about_means, 0.0)


def _add_upper(
    total: Float[Tensor, "variables variables"],
    left: Float[Tensor, "rows variables"],
    right: Float[Tensor, "rows variables"],
) -> None:
    """Add the product leftᵀ · right, which is symmetric: above the diagonal, and some below it."""
    for start in range(0, len(total), _STRIPE):
        stripe = slice(start, start + _STRIPE)
        total[stripe, start:] += left[:, stripe].T @ right[:, start:]


def _mirrored(upper: Float[Tensor, "variables variables"]) -> Float[Tensor, "variables variables"]:
    return upper.triu() + upper.triu(1).T


def _blocks(batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Cells and their weights, some rows at a time; the weight of a missing cell is 0.

    Where nothing is missing, all cells of a row share its weight.
    """
    for rows in chunks(len(batch), "information", 8 * batch.x.shape[1], batch.x.device):
        part = batch[rows]
        weight = torch.ones(len(part), 1, dtype=torch.float64, device=part.x.device)
        if part.observed is not None:
            weight = part.observed.double()
        if part.weights is not None:
            weight *= part.weights.double().unsqueeze(1)
        yield part.x.double(), weight
