"""The entropy of a variable given the evidence."""

from __future__ import annotations

import math
from typing import Literal, overload

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch_events import Events
from einet.inference.conditioned import Conditioned
from einet.inference.cut_leaves import alike_rows
from einet.inference.mixtures import Mixtures, is_discrete
from einet.inference.quadrature import Estimate, integrate_entropy
from einet.inference.states import families_of, marginal_of_states
from einet.layers.leaf_events import IntervalPairs, event_pairs

__all__ = ["check_error", "count_states", "entropy"]

# Cells of a table of states made at a time, and the most states that are worth adding up.
_CELLS_AT_ONCE = 1 << 22
_MOST_STATES = 1 << 24
# The error of integrals that is aimed at, and what a row's densities take on the way.
_TOLERANCE = 1e-8
_BYTES_EACH = 1 << 17
# The largest error of an answer that does not show it.
_UNTOLD = 1e-4
# The log of a chance that does not matter.
_NEXT_TO_NOTHING = -60.0


@overload
def entropy(
    posterior: Conditioned, variable: int, with_error: Literal[False] = False
) -> Float[Tensor, " batch"]: ...


@overload
def entropy(posterior: Conditioned, variable: int, with_error: Literal[True]) -> Estimate: ...


@torch.no_grad()
def entropy(
    posterior: Conditioned, variable: int, with_error: bool = False
) -> Float[Tensor, " batch"] | Estimate:
    r"""The entropy :math:`-\sum_s p(x_d = s \mid e) \log p(x_d = s \mid e)`, in nats.

    How much less it is than without the evidence says how much the evidence tells of the variable.
    That of a discrete variable is an exact sum, and 0 where the variable is observed. That of a
    continuous one is the integral :math:`-\int p(x_d \mid e) \log p(x_d \mid e)\, dx_d`, found by
    quadrature to about eight digits; it may be negative, and is −∞ where the variable is observed.
    Where it has an event of its own, it is over what the event leaves of the density.

    Args:
        variable: The number of a variable.
        with_error: Whether to return the pair ``(value, error)``, with the estimated error of
            each row; it is 0 for discrete variables. Without, an error above 1e-4 is refused.

    Example:
        >>> import einet, math
        >>> graph = einet.random_trees(2, depth=1, replicas=1)
        >>> model = einet.Einet(graph, einet.Bernoulli(), num_sums=1)
        >>> p = model.prior().probabilities(1)
        >>> by_hand = -(p * p.log()).sum(1)
        >>> torch.allclose(model.prior().entropy(1), by_hand)
        True
        >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=1)
        >>> value, error = model.prior().entropy(1, with_error=True)
        >>> by_hand = 0.5 * torch.log(2 * math.pi * math.e * model.variance()[1])
        >>> torch.allclose(value, by_hand), bool(error < 1e-6)
        (True, True)
    """
    variable = posterior.as_variable(variable)
    posterior.check_possible()
    chosen = torch.zeros(posterior.model.num_variables, dtype=torch.bool)
    chosen[variable] = True
    if bool(is_discrete(posterior.model, chosen.to(posterior.model.device))[variable]):
        value = _of_states(posterior, variable)
        error = torch.zeros_like(value)
    else:
        value, error = _of_density(posterior, variable)
    return check_error(Estimate(value, error), with_error, posterior.model.dtype)


def check_error(
    found: Estimate, with_error: bool, dtype: torch.dtype
) -> Float[Tensor, "*shape"] | Estimate:
    """An estimate, or its value alone if its error is as good as none."""
    if with_error:
        return Estimate(found.value.to(dtype), found.error.to(dtype))
    if not bool((found.error <= _UNTOLD).all()):
        raise ArithmeticError(
            f"the integral is uncertain by up to {float(found.error.max()):.2g}; ask "
            "with_error=True for the value and its error"
        )
    return found.value.to(dtype)


def _of_states(posterior: Conditioned, variable: int) -> Float[Tensor, " batch"]:
    count, device = count_states(posterior, variable), posterior.model.device
    total = torch.zeros(len(posterior), dtype=torch.float64, device=device)
    step = max(1, _CELLS_AT_ONCE // max(1, len(posterior)))
    for start in range(0, count, step):
        states = torch.arange(start, min(start + step, count), dtype=torch.float64, device=device)
        total += torch.special.entr(marginal_of_states(posterior, variable, states)).sum(1)
    return total


def _of_density(posterior: Conditioned, variable: int) -> Estimate:
    device = posterior.model.device
    value = torch.zeros(len(posterior), dtype=torch.float64, device=device)
    error = torch.zeros_like(value)
    variables = torch.tensor([variable], device=device)
    for alike in alike_rows(posterior, [variable]):
        some = posterior if alike is None else posterior.at(alike)
        for rows, mixtures in Mixtures.pieces(some, variables, _BYTES_EACH):
            found, _ = integrate_entropy(mixtures, _TOLERANCE)
            which = rows if alike is None else alike[rows]
            value[which], error[which] = found
    known = posterior.evidence.mask[:, variable]
    return Estimate(value.masked_fill(known, -torch.inf), error.masked_fill(known, 0.0))


def count_states(posterior: Conditioned, variable: int, most: int = _MOST_STATES) -> int:
    """How many states 0, 1, … there are, or how many there are but for a chance of e⁻⁶⁰.

    Args:
        posterior: Of which model.
        variable: A discrete variable.
        most: So many are worth adding up; more are refused.
    """
    counts = [family.num_states or 0 for family in families_of(posterior.model, variable)]
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
                    counts.append(math.ceil(min(last, 2.0 * most)) + 1)
    counts = [_count_in_event(posterior, variable, max(counts))]
    if max(counts) > most:
        raise ValueError(
            f"variable {variable} has more than {most} states of some probability, too "
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
