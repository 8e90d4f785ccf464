"""Probabilities of the states of discrete variables given the evidence."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.families import ExponentialFamily
from einet.inference.conditioned import Conditioned, WeightedLeaves
from einet.inference.distribution import Distribution
from einet.kernels.memory import block_bytes
from einet.layers import LeafBlock

__all__ = ["families_of", "marginal_of_states", "probabilities", "state_sums"]


@torch.no_grad()
def probabilities(posterior: Conditioned, variable: int) -> Float[Tensor, "batch states"]:
    """p(x_d = s | e) of every state s = 0, 1, … of one variable with finitely many."""
    variable = posterior.as_variable(variable)
    posterior.check_possible()
    count = 0
    for family in families_of(posterior.model, variable):
        if family.num_states is None:
            raise ValueError(
                f"variable {variable} is {type(family).__name__}, which has no finite set of "
                "states; ask log_marginals for densities"
            )
        count = max(count, family.num_states)
    states = torch.arange(count, dtype=torch.float64, device=posterior.model.device)
    return marginal_of_states(posterior, variable, states).to(posterior.model.dtype)


def families_of(model: Distribution, variable: int) -> list[ExponentialFamily]:
    """The family of one variable in every Einet of a model: most models have but one."""
    families = []
    for _, einet in model.weighted_einets():
        for group in einet.leaf.family_groups:
            column = (group.variables == variable).nonzero()
            if column.numel():
                families.append(group.family.at(column[0, 0]))
    return families


def marginal_of_states(
    posterior: Conditioned, variable: int, states: Float[Tensor, " states"]
) -> Float[Tensor, "batch states"]:
    """p(x_d = s | e) of given states of one variable (float64); where observed, 0 or 1."""
    chosen = torch.tensor([variable], device=states.device)

    def sums(leaves: WeightedLeaves) -> Float[Tensor, "rows states"]:
        return state_sums(leaves, chosen, states)[0].T

    answer = posterior.expectation(sums, len(states))
    value = posterior.evidence.x[:, variable, None].double()
    certain = (value == states).double()
    return torch.where(posterior.evidence.mask[:, variable, None], certain, answer)


def state_sums(
    leaves: WeightedLeaves,
    variables: Int[Tensor, " some"],
    states: Float[Tensor, " states"],
    up_to: Float[Tensor, " states"] | None = None,
) -> Float[Tensor, "some states rows"]:
    """Σ p_L p_L(x_d = s) of some variables over the leaves of one Einet (float64).

    Args:
        leaves: The leaves, with their flow.
        variables: The variables.
        states: The states s.
        up_to: Where given, each density counts by its maximum over all states from s up to this
            one, which bounds the probability of each of them. Densities must have one peak.
    """
    leaf, flow = leaves.leaf, leaves.flow
    place = torch.full((leaf.num_variables,), -1, device=flow.device)
    place[variables] = torch.arange(len(variables), device=flow.device)
    shape = (len(variables), len(states), flow.shape[-1])
    total = torch.zeros(shape, dtype=torch.float64, device=flow.device)
    for block in leaf.leaf_blocks:
        number = place[block.group.variables[block.columns]]
        leaf_index, position = (number >= 0).nonzero().unbind(1)
        entries = block.stored.shape[0] * len(states) + len(states) * flow.shape[-1]
        step = max(1, 8 * block_bytes(flow.device) // (8 * max(1, entries)))
        for start in range(0, len(leaf_index), step):
            at, where = leaf_index[start : start + step], position[start : start + step]
            table = _densities(block, at, where, states, up_to)
            p = flow[block.leaves[at]].double()
            total.index_add_(0, number[at, where], torch.bmm(table, p))
    return total


def _densities(
    block: LeafBlock,
    leaf_index: Int[Tensor, " pairs"],
    position: Int[Tensor, " pairs"],
    states: Float[Tensor, " states"],
    up_to: Float[Tensor, " states"] | None,
) -> Float[Tensor, "pairs states K"]:
    """The densities of some pairs of leaf and variable, at given states."""
    s = block.columns.shape[1]
    column = block.columns[leaf_index, position]
    stored = block.stored.detach()[:, leaf_index * s + position].double()
    family = block.group.family.at(column.unsqueeze(-1))
    x = states.expand(len(column), -1)
    if up_to is not None:
        modes = block.group.family.at(column).mode(stored).unsqueeze(-1)
        x = torch.minimum(torch.maximum(modes, states), up_to)
    if family.kernel != "table":
        return family.log_prob(x, stored.unsqueeze(-2)).exp().permute(1, 2, 0)
    # One-hot statistics of all states would take the square of their number.
    natural = block.group.family.at(column)
    theta = natural.theta_of(stored)
    rows = states.clamp(0, theta.shape[-1] - 1).long()
    logs = theta[..., rows] - natural.A(theta).unsqueeze(-1)
    return (logs + family.log_h(x)).exp().permute(1, 2, 0)
