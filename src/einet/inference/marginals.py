"""Marginals of single variables given the evidence, at given values."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.inference.conditioned import Conditioned, same_values
from einet.inference.log_sums import LogSums
from einet.kernels.memory import block_bytes, blocks
from einet.layers import LeafLayer

__all__ = ["log_marginals", "marginals"]


@torch.no_grad()
def log_marginals(
    posterior: Conditioned, x: Any, observed: Any = None
) -> Float[Tensor, "batch variables"]:
    """log p(x_d | e) of each variable by itself, at the given values; 0 where x is missing."""
    query, evidence = posterior.as_query(x, observed), posterior.evidence
    total = torch.full_like(query.x, -torch.inf, dtype=torch.float64)
    for leaves in posterior.weighted_leaves():
        logs = marginals(leaves.leaf, leaves.flow, query[leaves.rows])
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
