"""Averages over the leaves of one variable, given evidence: what answers about a column need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from einet.engine.few_rows import FewPasses
from einet.inference.few_rows import FewLeaves
from einet.inference.posterior import Posterior
from einet.tables.monotone import MonotoneMap

__all__ = [
    "GaussianLeaves",
    "average_of_map",
    "cdf_at",
    "few_leaves",
    "gaussian_leaves",
    "means_behind",
]

# Means are integrated over so many deviations on each side, or to where a density has fallen by
# e to this power, in so many panels, and more at the knots of a map, with so many points each.
_REACH, _FALL, _PANELS, _POINTS = 14.0, 45.0, 28, 8


class GaussianLeaves(NamedTuple):
    """The Gaussian leaves of one variable for some rows, with their posterior probabilities.

    Attributes:
        rows: Which rows these are.
        mean, deviation: Of each leaf, on the model's scale.
        weight: p(L | e) of each leaf in each row.
        source: The passes and the leaf node that they come from, of a few rows.
    """

    rows: slice | Tensor
    mean: Float[Tensor, " leaves"]
    deviation: Float[Tensor, " leaves"]
    weight: Float[Tensor, "leaves rows"]
    source: tuple[FewPasses, int] | None = None


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


def few_leaves(leaves: Iterable[FewLeaves], rows: int) -> list[GaussianLeaves]:
    """The same of a few rows."""
    every = slice(0, rows)
    return [
        GaussianLeaves(every, *_moments(passes, node), torch.from_numpy(weight), (passes, node))
        for passes, node, weight in leaves
    ]


def average_of_map(
    leaves: Iterable[GaussianLeaves], rows: int, scale: MonotoneMap, ends: tuple[float, float]
) -> Float[np.ndarray, " rows"]:
    """E[f⁻¹(z) | e] for each row: the mean of a column behind a map.

    Args:
        leaves: The leaves of z.
        rows: How many rows there are.
        scale: The map f.
        ends: Between what z is known to lie.
    """
    total = np.zeros(rows)
    for part in leaves:
        find = partial(means_behind, scale, part.mean.numpy(), part.deviation.numpy(), ends)
        if part.source is None or np.isfinite(ends).any():
            means = find()
        else:
            # Once for all questions about single rows: it takes longer than their passes.
            passes, node = part.source
            means = passes.leaf.once((node, scale), find)
        total[part.rows] += means @ part.weight.numpy()
    return total


def _moments(passes: FewPasses, node: int) -> tuple[Tensor, Tensor]:
    """Mean and deviation of a leaf's densities."""

    def find() -> tuple[Tensor, Tensor]:
        block, number = passes.leaf.blocks[node]
        family, stored = block.group.family.at(block.columns[number, 0]), block.stored[:, number]
        return family.mean(stored.detach()), family.variance(stored.detach()).sqrt()

    return passes.leaf.once((node, "moments"), find)


def means_behind(
    scale: MonotoneMap,
    mean: Float[np.ndarray, " leaves"],
    deviation: Float[np.ndarray, " leaves"],
    ends: tuple[float, float],
) -> Float[np.ndarray, " leaves"]:
    """E[f⁻¹(z)] of each leaf, cut off at the ends between which z is known to lie.

    The integral is by Gauss' rule, in panels that end where the map has its knots.
    """
    peak = np.clip(mean, *ends)
    # Beyond an end that is far out, what is left of a leaf falls like an exponential.
    away = np.abs(peak - mean)
    reach = np.minimum(_REACH, _FALL * deviation / np.maximum(away, 1e-300)) * deviation
    low, high = np.maximum(peak - reach, ends[0]), np.minimum(peak + reach, ends[1])
    grid = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _PANELS + 1)
    knots = np.clip(scale.z, low[:, None], high[:, None])
    edges = np.sort(np.concatenate([grid, knots], 1), 1)
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    half = np.diff(edges, axis=1)[..., None] / 2
    z = edges[:, :-1, None] + half * (points + 1)
    # Relative to the density at its highest point, which may be too small to be a number.
    above = (peak - mean)[:, None, None], deviation[:, None, None]
    fall = (z - mean[:, None, None]) ** 2 - above[0] ** 2
    share = half * weights * np.exp(-0.5 * fall / above[1] ** 2)
    x = scale.inverse(z.reshape(-1)).reshape(z.shape)
    whole = share.sum((1, 2))
    # Between ends that are one number, that is the mean.
    at_peak = scale.inverse(peak)
    return np.where(whole > 0, (x * share).sum((1, 2)) / np.where(whole > 0, whole, 1), at_peak)


def cdf_at(
    leaves: list[GaussianLeaves], z: Float[Tensor, "rows points"], ends: tuple[float, float]
) -> Float[Tensor, "rows points"]:
    """P(Z ≤ z | e) at some points of each row, where Z is known to lie between ``ends``."""
    if ends[0] == ends[1]:
        return (z >= ends[0]).to(z.dtype)
    total = torch.zeros_like(z)
    for rows, mean, deviation, weight, _ in leaves:
        low, high = _shares(mean, deviation, ends)
        at = torch.special.ndtr((z[rows] - mean[:, None, None]) / deviation[:, None, None])
        inside = (high - low).clamp(min=torch.finfo(torch.float64).tiny)
        share = ((at - low[:, None, None]) / inside[:, None, None]).clamp(0, 1)
        total[rows] += (share * weight.unsqueeze(-1)).sum(0)
    return total


def _shares(mean: Tensor, deviation: Tensor, ends: tuple[float, float]) -> tuple[Tensor, Tensor]:
    low, high = (torch.special.ndtr((end - mean) / deviation) for end in ends)
    return low, high
