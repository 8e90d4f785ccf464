"""Sums over leaf densities under their posterior probabilities p_L."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.data.batch import Batch
from einet.kernels.memory import block_bytes, blocks
from einet.layers import LeafLayer
from einet.layers.expectation import expectation

__all__ = ["marginals", "mean_and_variance", "state_probabilities"]


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


def marginals(
    leaf: LeafLayer, flow: Float[Tensor, "leaf_nodes K batch"], query: Batch
) -> Float[Tensor, "batch variables"]:
    """log p(x_d | e) of each variable at the query's values."""
    total = _LogSums(leaf.num_variables, flow)
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


class _LogSums:
    """Sums over the leaves of each variable of numbers given by their logs.

    Kept as ``sums·exp(peaks)``, so that neither far too small nor far too large ones are lost.
    """

    def __init__(self, variables: int, flow: Float[Tensor, "leaf_nodes K batch"]) -> None:
        shape, kind = (variables, flow.shape[-1]), torch.float64
        # Peaks are finite always: the difference of two infinite ones would be NaN.
        self._low = torch.finfo(kind).min
        self._peaks = flow.new_full(shape, self._low, dtype=kind)
        self._sums = flow.new_zeros(shape, dtype=kind)

    def add_(
        self,
        variables: Int[Tensor, " pairs"],
        piece: slice,
        logs: Float[Tensor, "pairs samples"],
    ) -> None:
        """Add numbers to the sums of their variables, of which some may occur several times."""
        peaks, sums = self._peaks[:, piece], self._sums[:, piece]
        finite = logs.clamp(self._low, -self._low)
        higher = peaks.scatter_reduce(0, variables.unsqueeze(1).expand_as(logs), finite, "amax")
        sums *= (peaks - higher).exp()
        sums.index_add_(0, variables, (logs - higher[variables]).exp())
        peaks.copy_(higher)

    def log(self) -> Float[Tensor, "variables batch"]:
        return self._sums.log() + self._peaks


def state_probabilities(
    leaf: LeafLayer, flow: Float[Tensor, "leaf_nodes K batch"], variable: int
) -> Float[Tensor, "batch states"]:
    """p(x_d = s | e) of every state of one variable."""
    for block in leaf.leaf_blocks:
        group = block.group
        column = (group.variables == variable).nonzero()
        if column.numel():
            break
    else:
        raise AssertionError(f"no leaf over variable {variable}")
    family = group.family.at(column[0, 0])
    states = family.num_states
    if states is None:
        raise ValueError(
            f"variable {variable} is {type(family).__name__}, which has no finite set of states; "
            "ask log_marginals for densities"
        )
    grid = torch.arange(states, dtype=torch.float64, device=flow.device)
    total = flow.new_zeros(flow.shape[-1], states, dtype=torch.float64)
    for block in leaf.leaf_blocks:
        if block.group is not group:
            continue
        leaf_index, position = (block.columns == column[0, 0]).nonzero().unbind(1)
        pair = leaf_index * block.columns.shape[1] + position
        stored = block.stored.detach().double()[:, pair].unsqueeze(-2)
        table = family.log_prob(grid, stored).exp()
        p = flow[block.leaves[leaf_index]].double()
        total += torch.einsum("nkb,kns->bs", p, table)
    return total
