"""Probabilities of the states of discrete variables given the evidence."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._memory import chunks
from einet.data.batch_events import Events
from einet.families import ExponentialFamily
from einet.inference.conditioned import Conditioned, WeightedLeaves
from einet.inference.distribution import Distribution
from einet.kernels.memory import block_bytes
from einet.layers import LeafBlock
from einet.layers.leaf_events import IntervalPairs, event_pairs, log_states

__all__ = ["families_of", "marginal_of_states", "probabilities", "state_sums"]


@torch.no_grad()
def probabilities(posterior: Conditioned, variable: int) -> Float[Tensor, "batch states"]:
    """p(x_d = s | e) of every state s = 0, 1, … of one variable with finitely many.

    Args:
        variable: Which one.

    Returns:
        ``[batch, states]``; the rows add up to 1.

    Example:
        >>> import einet
        >>> leaves = [einet.Gaussian(), einet.Categorical(3)]
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), leaves, num_sums=3)
        >>> found = model.given([[0.5, float("nan")]]).probabilities(1)
        >>> found.shape, torch.allclose(found.sum(1), torch.ones(1))
        (torch.Size([1, 3]), True)
    """
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
            one, which bounds the probability of each of them. Densities must have one peak. A
            variable with an event must have the same bounds in all rows then.
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
            x = states if up_to is None else _nearest_modes(block, at, where, states, up_to)
            table = log_states(block, at, where, x).exp().permute(1, 2, 0)
            p = flow[block.leaves[at]].double()
            total.index_add_(0, number[at, where], torch.bmm(table, p))
    if leaves.events is not None:
        _put_event_sums_(total, leaves, leaves.events, place, states, up_to)
    return total


def _nearest_modes(
    block: LeafBlock,
    leaf_index: Int[Tensor, " pairs"],
    position: Int[Tensor, " pairs"],
    states: Float[Tensor, " states"],
    up_to: Float[Tensor, " states"],
) -> Float[Tensor, "K pairs states"]:
    """The most probable state from ``states`` to ``up_to`` of each density."""
    column = block.columns[leaf_index, position]
    stored = block.by_leaf.detach()[:, leaf_index, position].double()
    modes = block.group.family.at(column).mode(stored).unsqueeze(-1)
    return torch.minimum(torch.maximum(modes, states), up_to)


def _put_event_sums_(
    total: Float[Tensor, "some states rows"],
    leaves: WeightedLeaves,
    events: Events,
    place: Int[Tensor, " variables"],
    states: Float[Tensor, " states"],
    up_to: Float[Tensor, " states"] | None,
) -> None:
    """Put sums of variables with events in place: of densities that are truncated by them."""
    asked = torch.tensor(events.all_variables, device=place.device)
    asked = place[asked][place[asked] >= 0]
    if not len(asked):
        return
    total[asked] = 0.0
    for pairs in event_pairs(leaves.leaf, events):
        for number in (place[pairs.variables] >= 0).nonzero().flatten():
            pair = pairs.at(number)
            if up_to is None:
                x, weights = states, pair.weights_at(states.unsqueeze(0))[0]
            else:
                # Only where all rows have the same bounds; then those of states are no wider.
                assert isinstance(pair, IntervalPairs)
                first = torch.maximum(states, pair.lower[0].ceil())
                last = torch.minimum(up_to, pair.upper[0].floor())
                x = _nearest_modes(pair.block, pair.leaf, pair.position, first, last)
                weights = (first <= last).double().unsqueeze(-1)
            logs, mass = log_states(pair.block, pair.leaf, pair.position, x), pair.log_mass()
            sums = _sums(logs[:, 0], mass[:, 0], leaves.flow[pair.nodes[0]].double())
            total[place[pair.variables[0]]] += torch.where(weights > 0, sums * weights, 0.0)


def _sums(
    logs: Float[Tensor, "K states"], mass: Float[Tensor, "K _"], p: Float[Tensor, "K rows"]
) -> Float[Tensor, "states rows"]:
    """Σ_k p_k exp(logs_k − mass_k), where neither of the two may leave the range of numbers."""
    mass = torch.where(mass > -torch.inf, mass, torch.inf)
    if mass.shape[1] == 1:
        return (logs - mass).exp().T @ p
    result = p.new_empty(logs.shape[1], p.shape[1])
    for rows in chunks(p.shape[1], "block", 8 * logs.numel(), p.device):
        share = (logs.unsqueeze(-1) - mass[:, None, rows]).exp()
        result[:, rows] = (share * p[:, None, rows]).sum(0)
    return result
