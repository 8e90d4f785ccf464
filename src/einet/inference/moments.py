"""Means and variances given the evidence: sums over leaf moments under p_L."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch_events import Events
from einet.inference.conditioned import Conditioned, WeightedLeaves
from einet.layers.leaf_events import event_pairs

__all__ = ["mean", "variance"]


@torch.no_grad()
def mean(posterior: Conditioned) -> Float[Tensor, "batch variables"]:
    """E[x | e]; NaN for Categorical variables that are not observed: see :meth:`impute`.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
        >>> posterior = model.given([[1.0, float("nan")]])
        >>> torch.allclose(posterior.mean()[:, 1].float(), posterior.probabilities(1)[:, 1])
        True
    """
    return posterior.keep_evidence(_moments(posterior)[0].to(posterior.result_dtype))


@torch.no_grad()
def variance(posterior: Conditioned) -> Float[Tensor, "batch variables"]:
    """Var[x | e], 0 where observed; NaN for Categorical variables that are not observed.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
        >>> posterior = model.given([[1.0, float("nan")]])
        >>> mean, variance = posterior.mean()[0], posterior.variance()[0]
        >>> variance[0].item(), torch.allclose(variance[1], mean[1] * (1 - mean[1]))
        (0.0, True)
    """
    missing = _moments(posterior)[1].masked_fill(posterior.evidence.mask, 0.0)
    return missing.to(posterior.result_dtype)


def _moments(posterior: Conditioned) -> tuple[Tensor, Tensor]:
    return posterior.kept.once("moments", lambda: _find_moments(posterior))


def _find_moments(posterior: Conditioned) -> tuple[Tensor, Tensor]:
    """Both moments of all variables, those of one Einet after the other taken in.

    Each changes the mean by its share of the difference, so that nothing cancels for data far from
    the origin.
    """
    everything, totals = slice(0, len(posterior)), None
    for leaves in posterior.weighted_leaves():
        rows, share = leaves.rows, leaves.share.unsqueeze(-1)
        of_einet, within = posterior.moments_under(leaves)
        if leaves.events is not None:
            _put_moments_(of_einet, within, leaves, leaves.events)
        if leaves.alone and isinstance(rows, slice) and rows == everything:
            return of_einet, within
        totals = _no_moments(posterior) if totals is None else totals
        mean, variance, weight = totals
        if leaves.alone:
            mean[rows], variance[rows] = of_einet, within
            continue
        before, after = weight[rows], weight[rows] + share
        away = of_einet - mean[rows]
        # The first has nothing to be away from, and the square of a huge mean is infinite.
        between = torch.where(before > 0, away**2, 0.0) * (before * share / after)
        mean[rows] += away * (share / after)
        variance[rows] += share * within + between
        weight[rows] = after
    mean, variance, _ = _no_moments(posterior) if totals is None else totals
    return mean, variance


def _no_moments(posterior: Conditioned) -> tuple[Tensor, Tensor, Tensor]:
    """Means, variances and weights of rows, before any Einet was taken in."""
    mean = torch.zeros_like(posterior.evidence.x, dtype=torch.float64)
    return mean, torch.zeros_like(mean), mean.new_zeros(len(mean), 1)


def _put_moments_(
    mean: Float[Tensor, "rows variables"],
    variance: Float[Tensor, "rows variables"],
    leaves: WeightedLeaves,
    events: Events,
) -> None:
    """Put moments of variables with events in place, taken about a point that the event admits."""
    variables = list(events.all_variables)
    centre = _centres(mean, events)
    place = torch.full((leaves.leaf.num_variables,), -1, device=mean.device)
    place[variables] = torch.arange(len(variables), device=mean.device)
    first, second = torch.zeros_like(centre), torch.zeros_like(centre)
    for pairs in event_pairs(leaves.leaf, events):
        which = place[pairs.variables]
        p = leaves.flow[pairs.nodes].transpose(0, 1).double()
        of_leaf, spread = pairs.moments()
        # A density without mass has no moments, and no say.
        away = torch.where(p > 0, of_leaf - centre[which], 0.0)
        spread = torch.where(p > 0, spread, 0.0)
        first.index_add_(0, which, (p * away).sum(0))
        second.index_add_(0, which, (p * (spread + away.square())).sum(0))
    found = (centre + first).T
    # Posterior probabilities of float32 do not add up to 1 exactly.
    count = len(events.variables)
    inside = torch.minimum(torch.maximum(found[:, :count], events.lower), events.upper)
    mean[:, variables] = torch.cat([inside, found[:, count:]], 1)
    variance[:, variables] = (second - first.square()).clamp_(min=0.0).T


def _centres(mean: Float[Tensor, "rows variables"], events: Events) -> Float[Tensor, "some rows"]:
    """A number near the posterior means, within each event."""
    without = mean.nan_to_num(0.0)
    inside = torch.maximum(without[:, list(events.variables)], events.lower)
    centres = [torch.minimum(inside, events.upper).T]
    for column in events.states:
        ends = (column.values[0], column.values[-1])
        centres.append(without[:, column.variable].clamp(*ends).unsqueeze(0))
    return torch.cat(centres)
