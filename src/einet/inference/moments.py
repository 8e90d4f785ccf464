"""Means and variances given the evidence: sums over leaf moments under p_L."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from einet.inference.conditioned import Conditioned
from einet.layers import LeafLayer
from einet.layers.expectation import expectation

__all__ = ["mean", "mean_and_variance", "variance"]


@torch.no_grad()
def mean(posterior: Conditioned) -> Float[Tensor, "batch variables"]:
    """E[x | e]; NaN for Categorical variables that are not observed: see :meth:`impute`."""
    return posterior.keep_evidence(_moments(posterior)[0].to(posterior.result_dtype))


@torch.no_grad()
def variance(posterior: Conditioned) -> Float[Tensor, "batch variables"]:
    """Var[x | e], 0 where observed; NaN for Categorical variables that are not observed."""
    missing = _moments(posterior)[1].masked_fill(posterior.evidence.mask, 0.0)
    return missing.to(posterior.result_dtype)


def _moments(posterior: Conditioned) -> tuple[Tensor, Tensor]:
    return posterior.kept.once("moments", lambda: _find_moments(posterior))


def _find_moments(posterior: Conditioned) -> tuple[Tensor, Tensor]:
    """Both moments of all variables, those of one Einet after the other taken in.

    Each changes the mean by its share of the difference, so that nothing cancels for data far from
    the origin.
    """
    mean = torch.zeros_like(posterior.evidence.x, dtype=torch.float64)
    variance, weight = torch.zeros_like(mean), mean.new_zeros(len(mean), 1)
    for leaves in posterior.weighted_leaves():
        rows, share = leaves.rows, leaves.share.unsqueeze(-1)
        of_einet, within = mean_and_variance(leaves.leaf, leaves.flow)
        before, after = weight[rows], weight[rows] + share
        away = of_einet - mean[rows]
        # The first has nothing to be away from, and the square of a huge mean is infinite.
        between = torch.where(before > 0, away**2, 0.0) * (before * share / after)
        mean[rows] += away * (share / after)
        variance[rows] += share * within + between
        weight[rows] = after
    return mean, variance


def mean_and_variance(
    leaf: LeafLayer, flow: Float[Tensor, "leaf_nodes K batch"]
) -> tuple[Float[Tensor, "batch variables"], Float[Tensor, "batch variables"]]:
    """Posterior mean and variance of every variable, by the law of total variance.

    Moments are taken about a point in the middle of each variable's leaf means, so that nothing
    cancels for data far from the origin.
    """
    means, variances, centre = {}, {}, {}
    middle = flow.new_zeros(leaf.num_variables, dtype=torch.float64)
    count = torch.zeros_like(middle)
    for block in leaf.leaf_blocks:
        stored, family = block.stored.detach().double(), block.family
        means[block], variances[block] = family.mean(stored), family.variance(stored)
        variables = block.group.variables[block.columns].reshape(-1)
        middle.index_add_(0, variables, means[block].mean(0))
        count.index_add_(0, variables, torch.ones_like(variables, dtype=torch.float64))
    middle /= count
    first, second = {}, {}
    for block in leaf.leaf_blocks:
        centre = middle[block.group.variables[block.columns].reshape(-1)]
        first[block] = means[block] - centre
        second[block] = variances[block] + first[block] ** 2
    shift = expectation(leaf, flow, first)
    variance = (expectation(leaf, flow, second) - shift**2).clamp_(min=0.0)
    return (middle.unsqueeze(-1) + shift).T, variance.T
