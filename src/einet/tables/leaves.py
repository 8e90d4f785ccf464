"""Averages over the leaves of one variable, given evidence: what answers about a column need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from einet.inference.posterior import Posterior
from einet.tables.monotone import MonotoneMap

__all__ = ["GaussianLeaves", "average_of_map", "cdf_at", "gaussian_leaves"]

# Points of the rules by which means are integrated.
_POINTS = 64


class GaussianLeaves(NamedTuple):
    """The Gaussian leaves of one variable for some rows, with their posterior probabilities.

    Attributes:
        rows: Which rows these are.
        mean, deviation: Of each leaf, on the model's scale.
        weight: p(L | e) of each leaf in each row.
    """

    rows: slice | Tensor
    mean: Float[Tensor, " leaves"]
    deviation: Float[Tensor, " leaves"]
    weight: Float[Tensor, "leaves rows"]


def gaussian_leaves(posterior: Posterior, variable: int) -> Iterator[GaussianLeaves]:
    """The leaves of a Gaussian variable, in pieces whose weights add up to 1 in every row."""
    for leaves in posterior.weighted_leaves():
        for block in leaves.leaf.leaf_blocks:
            number = block.group.variables[block.columns]
            at, position = (number == variable).nonzero().unbind(1)
            if not len(at):
                continue
            s = block.columns.shape[1]
            family = block.group.family.at(block.columns[at, position])
            stored = block.stored.detach()[:, at * s + position].double()
            mean, variance = family.mean(stored), family.variance(stored)
            flow = leaves.flow[block.leaves[at]].double() * leaves.share
            yield GaussianLeaves(
                leaves.rows,
                mean.T.reshape(-1).cpu(),
                variance.T.reshape(-1).sqrt().cpu(),
                flow.flatten(0, 1).cpu(),
            )


def average_of_map(
    posterior: Posterior, variable: int, scale: MonotoneMap, ends: tuple[float, float]
) -> Float[np.ndarray, " rows"]:
    r"""E[f⁻¹(z) | e] for each row: the mean of a column behind a map.

    Each leaf's integral is by Gauss' rule, once for all rows: Gauss–Hermite over all z, or
    Gauss–Legendre over the leaf's own quantiles between ``ends``, where z is known to lie there.
    """
    total = torch.zeros(len(posterior), dtype=torch.float64)
    for leaves in gaussian_leaves(posterior, variable):
        points, weights = _rule(leaves, ends)
        x = scale.inverse(points.reshape(-1).numpy()).reshape(points.shape)
        means = torch.from_numpy(x @ weights)
        total[leaves.rows] += means @ leaves.weight
    return total.numpy()


def cdf_at(
    leaves: list[GaussianLeaves], z: Float[Tensor, " rows"], ends: tuple[float, float]
) -> Float[Tensor, " rows"]:
    """P(Z ≤ z | e) of each row, where Z is known to lie between ``ends``."""
    total = torch.zeros_like(z)
    for rows, mean, deviation, weight in leaves:
        low, high = _shares(mean, deviation, ends)
        at = torch.special.ndtr((z[rows] - mean.unsqueeze(1)) / deviation.unsqueeze(1))
        inside = (high - low).clamp(min=torch.finfo(torch.float64).tiny).unsqueeze(1)
        share = ((at - low.unsqueeze(1)) / inside).clamp(0, 1)
        total[rows] += (share * weight).sum(0)
    return total


def _shares(mean: Tensor, deviation: Tensor, ends: tuple[float, float]) -> tuple[Tensor, Tensor]:
    low, high = (torch.special.ndtr((end - mean) / deviation) for end in ends)
    return low, high


def _rule(
    leaves: GaussianLeaves, ends: tuple[float, float]
) -> tuple[Float[Tensor, "leaves points"], np.ndarray]:
    """Points on the scale of each leaf, and weights that add up to 1."""
    mean, deviation = leaves.mean.unsqueeze(1), leaves.deviation.unsqueeze(1)
    if not np.isfinite(ends).any():
        points, weights = np.polynomial.hermite_e.hermegauss(_POINTS)
        return mean + deviation * torch.from_numpy(points), weights / weights.sum()
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    share = torch.from_numpy((points + 1) / 2)
    # On the side where Φ is small: close to 1 it has no digits left.
    a, b = ((end - mean) / deviation for end in ends)
    mirrored = a + b > 0
    a, b = torch.where(mirrored, -b, a), torch.where(mirrored, -a, b)
    low, high = torch.special.ndtr(a), torch.special.ndtr(b)
    quantile = torch.special.ndtri(low + (high - low) * share)
    # Where even the small side is 0 the leaf lies all at the near end.
    quantile = torch.where(quantile.isfinite(), quantile, b)
    z = mean + deviation * torch.where(mirrored, -quantile, quantile)
    return z.clamp(*ends), weights / 2
