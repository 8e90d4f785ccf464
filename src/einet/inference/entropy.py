"""The entropy of a discrete variable given the evidence."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.events import Events
from einet.inference.conditioned import Conditioned
from einet.inference.states import families_of, marginal_of_states
from einet.layers.leaf_events import IntervalPairs, event_pairs

__all__ = ["entropy"]

# Cells of a table of states made at a time, and the most states that are worth adding up.
_CELLS_AT_ONCE = 1 << 22
_MOST_STATES = 1 << 24
# The log of a chance that does not matter.
_NEXT_TO_NOTHING = -60.0


@torch.no_grad()
def entropy(posterior: Conditioned, variable: int) -> Float[Tensor, " batch"]:
    r"""The entropy :math:`-\sum_s p(x_d = s \mid e) \log p(x_d = s \mid e)`, in nats; exact.

    It is 0 where the variable is observed. How much less it is than without the evidence says how
    much the evidence tells of the variable.

    Args:
        variable: The number of a discrete variable.

    Example:
        >>> import einet
        >>> graph = einet.random_trees(2, depth=1, replicas=1)
        >>> model = einet.Einet(graph, einet.Bernoulli(), num_sums=1)
        >>> p = model.prior().probabilities(1)
        >>> by_hand = -(p * p.log()).sum(1)
        >>> torch.allclose(model.prior().entropy(1), by_hand)
        True
    """
    variable = posterior.as_variable(variable)
    posterior.check_possible()
    count, device = _count_states(posterior, variable), posterior.model.device
    total = torch.zeros(len(posterior), dtype=torch.float64, device=device)
    step = max(1, _CELLS_AT_ONCE // max(1, len(posterior)))
    for start in range(0, count, step):
        states = torch.arange(start, min(start + step, count), dtype=torch.float64, device=device)
        total += torch.special.entr(marginal_of_states(posterior, variable, states)).sum(1)
    return total.to(posterior.model.dtype)


def _count_states(posterior: Conditioned, variable: int) -> int:
    """How many states 0, 1, … there are, or how many there are but for a chance of e⁻⁶⁰."""
    counts = []
    for family in families_of(posterior.model, variable):
        if not family.discrete:
            raise ValueError(
                f"variable {variable} is {type(family).__name__}, which is continuous; entropy is "
                "for discrete variables"
            )
        counts.append(family.num_states or 0)
    for _, einet in posterior.model.weighted_einets():
        for block in einet.leaf.leaf_blocks:
            if block.group.family.num_states is None:
                pairs = block.group.variables[block.columns].reshape(-1) == variable
                stored = block.stored.detach()[:, pairs].double()
                if stored.numel():
                    # Bernstein: P(x > mean + t) < exp(−t² / (2·variance + 2t/3)) for counts.
                    family = block.group.family.at(block.columns.reshape(-1)[pairs])
                    spread = (400 + 120 * family.variance(stored)).sqrt()
                    last = float((family.mean(stored) + 20 + spread).max())
                    counts.append(math.ceil(min(last, 2.0 * _MOST_STATES)) + 1)
    counts = [_count_in_event(posterior, variable, max(counts))]
    if max(counts) > _MOST_STATES:
        raise ValueError(
            f"variable {variable} has more than {_MOST_STATES} states of some probability, too "
            "many to add up"
        )
    return max(counts)


def _count_in_event(posterior: Conditioned, variable: int, count: int) -> int:
    """The same under an event, given how many there are without: where it admits others."""
    events = posterior.evidence.events
    finite = any(family.num_states for family in families_of(posterior.model, variable))
    if events is None or variable not in events.all_variables or finite:
        return count
    for column in events.states:
        if column.variable == variable:
            return int(column.values[-1]) + 1
    number = events.variables.index(variable)
    lower, upper = events.lower[:, number], events.upper[:, number]
    last = max(count - 1, math.ceil(min(float(lower.max()), 2.0 * _MOST_STATES)))
    only = Events((variable,), lower.unsqueeze(1), upper.unsqueeze(1))
    # Twice as far, until what is left of every density is next to nothing.
    while last < min(float(upper.max()), _MOST_STATES):
        left = -math.inf
        for _, einet in posterior.model.weighted_einets():
            for pairs in event_pairs(einet.leaf, only):
                assert isinstance(pairs, IntervalPairs)
                beyond = torch.full_like(pairs.lower, last + 1.0)
                rest = pairs.log_prob_between(beyond, torch.full_like(beyond, math.inf))
                left = max(left, float(rest.max()))
        if left < _NEXT_TO_NOTHING:
            break
        last = 2 * last + 1
    return math.ceil(min(last, float(upper.max()))) + 1
