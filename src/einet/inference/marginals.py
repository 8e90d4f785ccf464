"""Marginals of single variables given the evidence, at given values."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.data.batch_events import Events
from einet.inference.conditioned import Conditioned, WeightedLeaves, same_values
from einet.inference.log_sums import LogSums
from einet.kernels.memory import block_bytes, blocks
from einet.layers import LeafLayer
from einet.layers.leaf_events import event_pairs

__all__ = ["log_marginals", "marginals"]


@torch.no_grad()
def log_marginals(
    posterior: Conditioned, x: Any, observed: Any = None
) -> Float[Tensor, "batch variables"]:
    """log p(x_d | e) of each variable by itself, at the given values; 0 where x is missing.

    Args:
        x: Values ``[batch, variables]``, NaN where not asked for; one row for each of the evidence.
        observed: A mask of the same shape, for integer data.

    Returns:
        ``[batch, variables]``.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> posterior = model.given([[0.5, float("nan")]])
        >>> alone = posterior.log_marginals([[0.5, 1.0]])
        >>> alone[0, 0], torch.allclose(alone[:, 1], posterior.log_prob([[float("nan"), 1.0]]))
        (tensor(0.), True)
    """
    query, evidence = posterior.as_query(x, observed), posterior.evidence
    total = torch.full_like(query.x, -torch.inf, dtype=torch.float64)
    for leaves in posterior.weighted_leaves():
        some = query[leaves.rows]
        logs = marginals(leaves.leaf, leaves.flow, some)
        if leaves.events is not None:
            _put_marginals_(logs, leaves, leaves.events, some)
        logs += leaves.share.log().unsqueeze(-1)
        total[leaves.rows] = torch.logaddexp(total[leaves.rows], logs)
    # Where a cell is observed: 0 if the query agrees, −∞ if not.
    certain = torch.where(same_values(query, evidence), 0.0, -torch.inf).double()
    answer = torch.where(evidence.mask, certain, total)
    return torch.where(query.mask, answer, 0.0).to(posterior.model.dtype)


def marginals(
    leaf: LeafLayer, flow: Float[Tensor, "leaf_nodes K batch"], query: Batch
) -> Float[Tensor, "batch variables"]:
    """log p(x_d | e) of each variable at the query's values."""
    total = LogSums(leaf.num_variables, flow)
    for block in leaf.leaf_blocks:
        n, s = block.columns.shape
        K = block.stored.shape[0]
        S, kind = block.group.family.num_statistics, block.group.family
        variables = block.group.variables[block.columns]
        x = torch.where(query.mask, query.x.double(), kind.filler)
        stored = block.stored.detach().double().view(K, n, s, -1)
        size = s * (3 * K + 2 * S) * 8
        parts, pieces = blocks(n, flow.shape[-1], size, 8 * block_bytes(flow.device))
        for part in parts:
            family = kind.at(block.columns[part].reshape(-1))
            columns = variables[part].reshape(-1)
            theta = family.theta_of(stored[:, part].flatten(1, 2))
            factor, A = theta.transpose(0, 1), family.A(theta).T.unsqueeze(-1)
            for piece in pieces:
                some = x[piece].index_select(1, columns)
                log_h = family.log_h(some).T.unsqueeze(1)
                values = torch.bmm(factor, family.T(some).permute(1, 2, 0)) - A + log_h
                p = flow[:, :, piece][block.leaves[part]].double()
                joint = values.unflatten(0, (-1, s)) + p.log().unsqueeze(1)
                total.add_(columns, piece, joint.logsumexp(2).flatten(0, 1))
    return total.log().T


def _put_marginals_(
    logs: Float[Tensor, "batch variables"], leaves: WeightedLeaves, events: Events, query: Batch
) -> None:
    """Put those of variables with events in place: of densities that are truncated by them."""
    total = LogSums(leaves.leaf.num_variables, leaves.flow)
    every = slice(0, len(query))
    for pairs in event_pairs(leaves.leaf, events):
        filler = pairs.block.group.family.filler
        x = torch.where(query.mask, query.x.double(), filler)[:, pairs.variables].T
        mass, p = pairs.log_mass(), leaves.flow[pairs.nodes].transpose(0, 1).double()
        joint = pairs.log_prob(x) - mass + p.log()
        joint = torch.where(mass > -torch.inf, joint, -torch.inf)
        total.add_(pairs.variables, every, joint.logsumexp(0))
    variables = list(events.all_variables)
    agree = events.log_weight(query.x, query.mask)
    logs[:, variables] = (total.log().T + agree)[:, variables]
