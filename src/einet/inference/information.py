"""The mutual information of two variables given the evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, overload

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from einet._memory import chunks
from einet.inference.conditioned import Conditioned
from einet.inference.cut_leaves import alike_rows
from einet.inference.entropy import check_error, count_states, entropy
from einet.inference.mixtures import Mixtures, densities, is_discrete
from einet.inference.quadrature import Estimate, Rule, cautious, integrate_entropy, of_states
from einet.layers import LeafBlock

__all__ = ["mutual_information"]

# The error of a marginal's integral that its points are chosen for, and how many panels of them it
# begins with: tables over two variables have the square of as many.
_TOLERANCE, _PANELS = 1e-4, 6
# Tables over two variables have the square of so many cells.
_MOST_STATES = 1 << 12
# Values of a variable that are less probable than this add nothing.
_NEGLIGIBLE = 1e-18


@overload
def mutual_information(
    posterior: Conditioned,
    i: int | None = None,
    j: int | None = None,
    with_error: Literal[False] = False,
) -> Float[Tensor, "batch *pairs"]: ...


@overload
def mutual_information(
    posterior: Conditioned, i: int | None = None, j: int | None = None, *, with_error: Literal[True]
) -> Estimate: ...


@torch.no_grad()
def mutual_information(
    posterior: Conditioned, i: int | None = None, j: int | None = None, with_error: bool = False
) -> Float[Tensor, "batch *pairs"] | Estimate:
    r"""How much two variables tell of each other given the evidence, in nats.

    .. math:: I = \sum_{a, b} p(x_i = a, x_j = b \mid e)
              \log \frac{p(x_i = a, x_j = b \mid e)}{p(x_i = a \mid e)\, p(x_j = b \mid e)}

    It is 0 where they are independent, and where one of them is observed. Of two discrete variables
    it is an exact sum. Where one is continuous, its sum is an integral, found by quadrature; with
    an event of its own, over what that leaves of its density.

    Without i and j all pairs are asked: with each value of each variable as further evidence, one
    pass up and down finds the distributions of all others.

    Args:
        i, j: The numbers of two variables; or neither, for all pairs.
        with_error: Whether to return the pair ``(value, error)``, with the estimated error of
            each number; it is 0 for discrete variables. Without, an error above 1e-4 is refused.

    Returns:
        ``[batch]`` for one pair. ``[batch, variables, variables]`` for all of them, which is
        symmetric; on its diagonal are the entropies of discrete variables, and ∞ for continuous
        ones (0 where observed).

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(3, 1, 2), einet.Bernoulli(), num_sums=4)
        >>> prior = model.prior()
        >>> tells = prior.mutual_information(0, 2)
        >>> torch.allclose(prior.mutual_information()[:, 2, 0], tells, atol=1e-6)
        True
        >>> less = prior.entropy(2) - sum(
        ...     p * model.given([[float(s), torch.nan, torch.nan]]).entropy(2)
        ...     for s, p in enumerate(prior.probabilities(0)[0])
        ... )
        >>> torch.allclose(tells, less, atol=1e-6)
        True
    """
    posterior.check_possible()
    if (i is None) != (j is None):
        raise ValueError(f"i and j must both be given, or neither, got i={i!r} and j={j!r}")
    if i is None or j is None:
        found = _all_pairs(posterior)
    else:
        first, second = posterior.as_variable(i), posterior.as_variable(j)
        if first == second:
            raise ValueError(f"i and j must be two variables, got {i!r} twice; ask entropy of one")
        every = _between(posterior, {first: [second]}, [first, second])
        found = Estimate(*(tensor[:, first, second] for tensor in every))
    return check_error(found, with_error, posterior.model.dtype)


def _all_pairs(posterior: Conditioned) -> Estimate:
    total = posterior.model.num_variables
    others = {i: [j for j in range(total) if j != i] for i in range(total)}
    value, error = _between(posterior, others, list(range(total)))
    discrete = is_discrete(posterior.model, torch.ones(total, device=value.device).bool())
    # Each pair was asked both ways around, which differ by their errors.
    apart = torch.where(discrete & discrete.unsqueeze(1), 0.0, 0.5 * (value - value.mT).abs())
    value, error = 0.5 * (value + value.mT), torch.maximum(error, error.mT) + apart
    for variable in range(total):
        if discrete[variable]:
            value[:, variable, variable] = entropy(posterior, variable).to(value)
        else:
            known = posterior.evidence.mask[:, variable]
            value[:, variable, variable] = torch.where(known, 0.0, torch.inf)
    return Estimate(value, error)


def _between(
    posterior: Conditioned, others: dict[int, list[int]], variables: list[int]
) -> Estimate:
    """The information of each variable with some others, ``[batch, variables, variables]``."""
    count, device = posterior.model.num_variables, posterior.model.device
    asked = torch.zeros(count, dtype=torch.bool, device=device)
    asked[variables] = True
    discrete = is_discrete(posterior.model, asked)
    shape = (len(posterior), count, count)
    value = torch.zeros(shape, dtype=torch.float64, device=device)
    error = torch.zeros_like(value)
    alike = alike_rows(posterior, [v for v in variables if not discrete[v]])
    if len(alike) > 1:
        # Points lie where a density is cut off, which must be the same place in all rows.
        for rows in alike:
            assert rows is not None
            value[rows], error[rows] = _between(posterior.at(rows), others, variables)
        return Estimate(value, error)
    # Points are chosen for all rows of a piece together; few rows need few of them.
    for rows in chunks(len(posterior), "values", _bytes_each(variables), device):
        some = posterior.at(rows) if rows.stop - rows.start < len(posterior) else posterior
        rules = {}
        for variable in variables:
            if discrete[variable]:
                states = count_states(posterior, variable, _MOST_STATES)
                rules[variable] = of_states(states, device)
            else:
                rules[variable] = _rule(some, variable)
        groups = [_Group(some, places, rules) for places in _alike(rules)]
        for i, of_i in others.items():
            wanted, given = set(of_i), _with_values(some, i, rules[i])
            for group in groups:
                if wanted.intersection(group.variables):
                    found = _told(some, given, group, bool(discrete[i]), discrete)
                    value[rows, i, group.index], error[rows, i, group.index] = found
            skipped = [j for j in variables if j not in wanted]
            value[rows, i, skipped], error[rows, i, skipped] = 0.0, 0.0
    return Estimate(value, error)


def _bytes_each(variables: Sequence[int]) -> int:
    """What a row may take: a table of a few hundred points of one variable and of all others."""
    return 8 * 4 * 256 * 256 * len(variables)


def _rule(posterior: Conditioned, variable: int) -> Rule:
    chosen = torch.tensor([variable], device=posterior.model.device)
    mixtures = Mixtures(list(posterior.weighted_leaves()), chosen, len(posterior))
    return integrate_entropy(mixtures, _TOLERANCE, _PANELS)[1]


def _alike(rules: dict[int, Rule]) -> list[list[int]]:
    """Variables with about as many points: they share a table."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for variable, rule in rules.items():
        by_size[(len(rule.points) - 1).bit_length()].append(variable)
    return list(by_size.values())


class _Group:
    """Variables that share tables, with their points and their marginals given the evidence."""

    def __init__(
        self, posterior: Conditioned, variables: list[int], rules: dict[int, Rule]
    ) -> None:
        self.variables = variables
        self.index = torch.tensor(variables, device=posterior.model.device)
        size = max(len(rules[variable].points) for variable in variables)
        # Shorter ones are filled up with points of no weight.
        self.points, self.fine, self.coarse = (
            torch.stack([_filled(tensors[number], size, number == 0) for tensors in of_group])
            for number, of_group in ((n, [rules[v] for v in variables]) for n in range(3))
        )
        mixtures = Mixtures(list(posterior.weighted_leaves()), self.index, len(posterior))
        self.kept: dict[LeafBlock, Tensor] = {}
        self.marginal = mixtures.table(densities, self.points, self.kept)


def _filled(numbers: Float[Tensor, " n"], size: int, repeat: bool) -> Float[Tensor, " size"]:
    fill = numbers[-1] if repeat else torch.zeros_like(numbers[-1])
    return torch.cat([numbers, fill.expand(size - len(numbers))])


class _Evidence(NamedTuple):
    """The posterior given a value of one variable, with that value's row and weights."""

    posterior: Conditioned
    row: Tensor
    fine: Tensor
    coarse: Tensor


def _with_values(posterior: Conditioned, variable: int, rule: Rule) -> _Evidence:
    """Every row of evidence with every value of one variable that is missing there."""
    chosen = torch.tensor([variable], device=rule.points.device)
    mixtures = Mixtures(list(posterior.weighted_leaves()), chosen, len(posterior))
    p = mixtures.table(densities, rule.points.unsqueeze(0))[0]
    weight = (p * rule.fine.unsqueeze(1)).masked_fill(posterior.evidence.mask[:, variable], 0.0)
    point, row = (weight > _NEGLIGIBLE).nonzero().unbind(1)
    evidence = posterior.evidence[row]
    x, mask = evidence.x.double(), evidence.mask.clone()
    x[:, variable], mask[:, variable] = rule.points[point], True
    # A value takes the place of an event.
    events = None if evidence.events is None else evidence.events.without(mask)
    batch = replace(evidence, x=x, observed=mask, events=events)
    given = posterior.model.conditioned_on(batch)
    coarse = (p * rule.coarse.unsqueeze(1))[point, row]
    return _Evidence(given, row, weight[point, row], coarse)


def _told(
    posterior: Conditioned,
    given: _Evidence,
    group: _Group,
    is_state: bool,
    discrete: Bool[Tensor, " variables"],
) -> Estimate:
    """The information of one variable with all of a group, ``[rows, group]``.

    Args:
        posterior: The posterior.
        given: The same given each value of the variable.
        group: The others.
        is_state: Whether the variable is discrete.
        discrete: Which variables are.
    """
    shape = (len(group.variables), len(posterior))
    totals = torch.zeros(4, *shape, dtype=torch.float64, device=group.points.device)
    bytes_each = 4 * 8 * group.points.numel()
    for part, mixtures in Mixtures.pieces(given.posterior, group.index, bytes_each):
        row, fine, coarse = given.row[part], given.fine[part], given.coarse[part]
        p, q = mixtures.table(densities, group.points, group.kept), group.marginal[:, :, row]
        # Each term is at least 0: what is added to the logs adds up to nothing.
        terms = torch.xlogy(p, torch.where(q > 0, p / q, 1.0)) - p + q
        found = torch.einsum("gp,gpn->gn", group.fine, terms)
        rough = torch.einsum("gp,gpn->gn", group.coarse, terms)
        lost = (torch.einsum("gp,gpn->gn", group.fine, p) - 1).abs()
        each = torch.stack([found * fine, found * coarse, rough * fine, lost * fine])
        totals.index_add_(2, row, each)
    value, by_i, by_group, lost = totals
    error = cautious(value, by_group, value) + lost
    error = torch.where(discrete[group.index].unsqueeze(1), 0.0, error)
    if not is_state:
        error = error + cautious(value, by_i, value)
    known = posterior.evidence.mask[:, group.index].T
    value, error = value.masked_fill(known, 0.0), error.masked_fill(known, 0.0)
    return Estimate(value.T, error.T)
