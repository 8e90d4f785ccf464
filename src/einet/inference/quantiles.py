"""Quantiles and central intervals of single variables given the evidence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from einet._checks import as_number, shown
from einet.inference.bracketing import first_not_below, root_between
from einet.inference.conditioned import Conditioned
from einet.inference.cut_leaves import has_event
from einet.inference.mixtures import Leaves, Mixtures, is_discrete, is_ordered, up_to

__all__ = ["Interval", "interval", "leaf_quantiles", "median", "quantile"]

# Points of each variable at which all rows are asked first.
_POINTS = 64
# Bits of the leaves' quantiles: sign, exponent and 24 of the mantissa.
_ROUNDS = 36


class Interval(NamedTuple):
    """The ends of intervals, ``[batch, variables]`` each."""

    lower: Float[Tensor, "batch variables"]
    upper: Float[Tensor, "batch variables"]


@torch.no_grad()
def quantile(posterior: Conditioned, q: Any) -> Float[Tensor, "*levels batch variables"]:
    r"""Quantiles of each variable by itself: the least x with :math:`P(X_d \le x \mid e) \ge q`.

    Exact to the last digit of the answer's type: a quantile of a mixture lies between those of its
    leaves, and the bracket is closed from there, for all rows and variables side by side.

    Args:
        q: A number between 0 and 1, or several ``[n]``; 0 and 1 themselves are not allowed, as
            most distributions have no end.

    Returns:
        ``[batch, variables]``, or ``[n, batch, variables]`` for several q. Where the evidence holds
        a value it is that value; NaN for categories that are not observed, which have no order
        (those of ``Categorical(..., numeric=True)`` have one).

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> posterior = model.given([[0.5, float("nan")]])
        >>> low, middle, high = posterior.quantile([0.1, 0.5, 0.9])[:, 0, 1]
        >>> bool(low < middle < high), posterior.quantile(0.1)[0, 0].item()
        (True, 0.5)
        >>> round(posterior.cdf(high)[0, 1].item(), 5)
        0.9
    """
    levels = _as_levels(q)
    posterior.check_possible()
    model, several = posterior.model, levels.reshape(-1).tolist()
    shape = (len(several), len(posterior), model.num_variables)
    answer = torch.full(shape, torch.nan, dtype=posterior.result_dtype, device=model.device)
    wanted = ~posterior.evidence.mask.all(0) & is_ordered(model)
    discrete = is_discrete(model, wanted)
    cut = has_event(posterior)
    for whole, in_event in itertools.product((False, True), repeat=2):
        variables = (wanted & (discrete == whole) & (cut == in_event)).nonzero().flatten()
        if not len(variables):
            continue
        room = 8 * len(variables) * (_POINTS + 16)
        for rows, mixtures in Mixtures.pieces(posterior, variables, room):
            for number, level in enumerate(several):
                if in_event:
                    found = _quantile_in_event(mixtures, level, whole)
                else:
                    found = _quantile(mixtures, level, whole, answer.dtype)
                answer[number, rows, variables] = found.to(answer.dtype)
    answer = posterior.keep_evidence(answer)
    return answer if levels.ndim else answer[0]


def _as_levels(q: Any) -> Float[Tensor, "*levels"]:
    wrong = f"q must be a number between 0 and 1, or a vector of them, got {shown(q)}"
    try:
        levels = torch.as_tensor(q, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(wrong) from error
    if levels.ndim > 1 or not bool(((levels > 0) & (levels < 1)).all()):
        raise ValueError(wrong)
    return levels


def interval(posterior: Conditioned, mass: float = 0.9) -> Interval:
    """The central interval of each variable by itself: from quantile (1 − mass)/2 to (1 + mass)/2.

    Args:
        mass: The probability that it has, at least: of continuous variables exactly, of discrete
            ones with what their states add.

    Returns:
        Both ends; they belong to the interval. NaN and observed values are as in :meth:`quantile`.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> posterior = model.prior()
        >>> lower, upper = posterior.interval(0.8)
        >>> inside = posterior.cdf(upper) - posterior.cdf(lower)
        >>> torch.allclose(inside, torch.tensor(0.8), atol=1e-5)
        True
    """
    outside = 1 - as_number("mass", mass, above=0)
    if outside <= 0:
        raise ValueError(f"mass must be below 1, got {mass!r}")
    lower, upper = quantile(posterior, [outside / 2, 1 - outside / 2])
    return Interval(lower, upper)


def median(posterior: Conditioned) -> Float[Tensor, "batch variables"]:
    """The median of each variable by itself; see :meth:`quantile`.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> posterior = model.given([[0.5, float("nan")]])
        >>> torch.allclose(posterior.cdf(posterior.median())[0, 1], torch.tensor(0.5))
        True
    """
    return quantile(posterior, 0.5)


def _quantile(
    mixtures: Mixtures, level: float, whole: bool, kind: torch.dtype
) -> Float[Tensor, "rows some"]:
    """One quantile of all variables of the mixtures, which are either all discrete or none."""
    before, points = _points(mixtures, level, whole)
    # All points of a variable are asked with one matrix product; rounding may let them fall.
    reached = mixtures.table(up_to, points).cummax(1).values.transpose(1, 2)
    place = (reached < level).sum(-1)
    # Of no leaf is the largest point below the level: where the sum is, by rounding, it is that.
    above = place.clamp(max=points.shape[1] - 1)
    each = torch.arange(len(points), device=points.device).unsqueeze(-1)
    upper, lower = points[each, above].T, points[each, (place - 1).clamp(min=0)].T
    lower = torch.where(place.T == 0, before, lower)

    def at(index: Tensor) -> Tensor:
        return reached.gather(-1, index.unsqueeze(-1))[..., 0].T - level

    at_upper = at(above).clamp(min=0.0)
    at_lower = torch.where(place.T == 0, -level, at((place - 1).clamp(min=0)))
    # Where a column's values are small beside their spread, digits count from the latter.
    spread = 1e-6 * (points[:, -1] - before)
    digit = max(0.25 * torch.finfo(kind).eps, torch.finfo(torch.float64).eps)

    def resolution(x: Tensor) -> Tensor:
        tiny = torch.finfo(torch.float64).tiny
        return digit * torch.maximum(x.abs(), spread).clamp(min=tiny)

    def function(x: Tensor) -> Tensor:
        return mixtures.at(up_to, x) - level

    return root_between(function, lower, upper, at_lower, at_upper, resolution, whole)


def _quantile_in_event(mixtures: Mixtures, level: float, whole: bool) -> Float[Tensor, "rows some"]:
    """The same of variables with events, which cut their leaves off, in each row somewhere else."""
    shape = (mixtures.rows, len(mixtures.variables))
    asked = torch.full(shape, level, dtype=torch.float64, device=mixtures.variables.device)
    return first_not_below(lambda x: mixtures.at(up_to, x), asked, whole)[1]


def _points(
    mixtures: Mixtures, level: float, whole: bool
) -> tuple[Float[Tensor, " some"], Float[Tensor, "some points"]]:
    """A point of each variable below that quantile of all its leaves, and points in order above.

    The points are those quantiles: all of them, or some of many.
    """
    lowest: list[list[Tensor]] = [[] for _ in mixtures.variables]
    several: list[list[Tensor]] = [[] for _ in mixtures.variables]
    # Pieces of rows that the same leaves explain ask for them once.
    for part in {part.block: part for part in mixtures.parts}.values():
        below, reached = leaf_quantiles(part, [level], whole)
        for number, place in enumerate(part.place.tolist()):
            lowest[place].append(below[0, :, number].min())
            several[place].append(reached[0, :, number])
    rows = []
    for of_variable in several:
        ordered = torch.cat(of_variable).sort().values
        ranks = torch.linspace(0, len(ordered) - 1, _POINTS, device=ordered.device).round().long()
        rows.append(ordered[ranks])
    return torch.stack([torch.stack(each).min() for each in lowest]), torch.stack(rows)


def leaf_quantiles(
    part: Leaves, levels: Sequence[float], whole: bool = False
) -> tuple[Float[Tensor, "levels K pairs"], Float[Tensor, "levels K pairs"]]:
    """Points of each leaf where P(X ≤ x) is below each level, and not below, with equal first bits.

    They are neighbours but for the last bits of a float64, which a bracket need not know.
    """
    stored, family = part.stored().unsqueeze(-2), part.family()
    asked = torch.tensor(levels, dtype=torch.float64, device=stored.device)
    asked = asked.view(-1, 1, 1, 1).expand(-1, *stored.shape[:-1]).contiguous()

    def function(x: Tensor) -> Tensor:
        return up_to(family, x, stored)

    below, reached = first_not_below(function, asked, whole, _ROUNDS)
    return below[..., 0], reached[..., 0]
