"""Integrals over one variable of functions of its marginal, with an estimate of their error.

Panels are refined where a rule of Gauss with 7 points and its extension by Kronrod to 15 differ,
and where the density's integral over a panel is not what the distribution function says: that
finds peaks that lie between all points.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from einet.inference.mixtures import Mixtures, densities, up_to
from einet.inference.quantiles import leaf_quantiles

__all__ = ["Estimate", "Rule", "cautious", "integrate_entropy", "of_states"]

# The rule of Gauss and Kronrod on [−1, 1]: nodes from the outermost to 0, the weights of all 15,
# and those of every second one, which are Gauss's own.
_NODES = (
    0.991455371120812639, 0.949107912342758525, 0.864864423359769073, 0.741531185599394440,
    0.586087235467691130, 0.405845151377397167, 0.207784955007898468, 0.0,
)  # fmt: skip
_FINE = (
    0.022935322010529225, 0.063092092629978553, 0.104790010322250184, 0.140653259715525919,
    0.169004726639267903, 0.190350578064785410, 0.204432940075298892, 0.209482141084727828,
)  # fmt: skip
_COARSE = (
    0.0, 0.129484966168869693, 0.0, 0.279705391489276668,
    0.0, 0.381830050505118945, 0.0, 0.417959183673469388,
)  # fmt: skip

# Quantiles of leaves between which panels begin, how many panels there are at first and at most.
_LEVELS = (1e-15, 1e-6, 0.01, 0.25, 0.5, 0.75, 0.99, 1 - 1e-6, 1 - 1e-15)
_PANELS, _MOST_PANELS, _ROUNDS = 16, 2048, 60


class Estimate(NamedTuple):
    """A number, and how far from it the truth may be: 0 for exact sums."""

    value: Float[Tensor, "*shape"]
    error: Float[Tensor, "*shape"]


class Rule(NamedTuple):
    """Points of one variable, with weights for sums in place of integrals.

    Attributes:
        points: The points, or all states of a discrete variable.
        fine: Their weights, 1 for states.
        coarse: Weights of a coarser rule, to compare with.
    """

    points: Float[Tensor, " points"]
    fine: Float[Tensor, " points"]
    coarse: Float[Tensor, " points"]


def of_states(count: int, device: torch.device) -> Rule:
    """The rule of a discrete variable with states 0, 1, …"""
    states = torch.arange(count, dtype=torch.float64, device=device)
    return Rule(states, torch.ones_like(states), torch.ones_like(states))


def cautious(
    fine: Float[Tensor, "*shape"], coarse: Float[Tensor, "*shape"], size: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """The error of the finer rule, by the usual estimate: (200 δ)^1.5 of the size, and at most δ.

    δ is the relative difference of the two.
    """
    difference = (fine - coarse).abs()
    relative = difference / size.clamp(min=torch.finfo(torch.float64).tiny)
    return torch.minimum(difference, size * (200 * relative) ** 1.5)


def integrate_entropy(
    mixtures: Mixtures, tolerance: float, panels: int = _PANELS
) -> tuple[Estimate, Rule]:
    """−∫ p(x) log p(x) dx of one variable for each row, and the points it was found at.

    Args:
        mixtures: The marginal of one continuous variable; where it has an event, all rows have the
            same.
        tolerance: The error to aim at; where it is out of reach, the estimate says so.
        panels: How many to begin with.
    """
    lower, upper = _first_panels(mixtures, panels)
    steepest = _log_peak(mixtures)
    value = torch.zeros(mixtures.rows, dtype=torch.float64, device=lower.device)
    error = torch.zeros_like(value)
    rules: list[tuple[Tensor, Tensor, Tensor]] = []
    done = 0
    for number in range(_ROUNDS):
        points, fine, coarse = _on_panels(lower, upper)
        rule = (points, fine, coarse)
        here, uncertain = _panel_entropies(mixtures, lower, upper, rule, steepest)
        middle = _middle(lower, upper)
        whole = (middle <= lower) | (middle >= upper)
        last = number == _ROUNDS - 1 or done + 2 * len(lower) > _MOST_PANELS
        good = whole | (uncertain.amax(1) <= tolerance / 64) | last
        value += here[good].sum(0)
        error += uncertain[good].sum(0)
        rules.append((points[good], fine[good], coarse[good]))
        done += int(good.sum())
        if bool(good.all()):
            break
        lower, middle, upper = lower[~good], middle[~good], upper[~good]
        lower, upper = torch.cat([lower, middle]), torch.cat([middle, upper])
    # Densities beyond what a float holds leave nothing to add up.
    known = value.isfinite() & error.isfinite()
    value, error = torch.where(known, value, torch.nan), torch.where(known, error, torch.inf)
    joined = [torch.cat(parts).reshape(-1) for parts in zip(*rules, strict=True)]
    return Estimate(value, error), Rule(*joined)


def _panel_entropies(
    mixtures: Mixtures,
    lower: Tensor,
    upper: Tensor,
    rule: tuple[Tensor, Tensor, Tensor],
    steepest: Float[Tensor, ""],
) -> tuple[Float[Tensor, "panels rows"], Float[Tensor, "panels rows"]]:
    """The integral over each panel, and its error."""
    points, fine, coarse = rule
    p = mixtures.table(densities, points.reshape(1, -1))[0].unflatten(0, points.shape)
    terms = torch.special.entr(p)
    integral, rough, size = (
        torch.einsum("ns,nsr->nr", weights, values)
        for weights, values in ((fine, terms), (coarse, terms), (fine, terms.abs()))
    )
    ends = mixtures.table(up_to, torch.cat([lower, upper]).unsqueeze(0))[0]
    mass = ends[len(lower) :] - ends[: len(lower)]
    lost = (torch.einsum("ns,nsr->nr", fine, p) - mass).abs()
    # Rounding of the distribution function is no peak that was missed.
    lost = torch.where(lost > 1e-12, lost, 0.0)
    logs = p.amax(1).clamp(min=torch.finfo(p.dtype).tiny).log().abs()
    logs = torch.maximum(logs, steepest.abs())
    return integral, cautious(integral, rough, size) + lost * (1 + logs)


def _log_peak(mixtures: Mixtures) -> Float[Tensor, ""]:
    """The log of the highest density of any leaf, which none of their mixtures exceeds."""
    peaks = []
    for part in {part.block: part for part in mixtures.parts}.values():
        stored, family = part.stored(), part.kind.at(part.column)
        peaks.append(family.log_prob(family.mode(stored), stored).max())
    peaks += [part.log_peak() for part in mixtures.cut]
    return torch.stack(peaks).max()


def _first_panels(
    mixtures: Mixtures, count: int
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Panels that reach from the least to the largest value that any leaf has to offer."""
    blocks = {part.block: part for part in mixtures.parts}
    levels = [leaf_quantiles(part, _LEVELS)[1].reshape(-1) for part in blocks.values()]
    levels += [part.quantiles(_LEVELS).reshape(-1) for part in mixtures.cut]
    ordered = torch.cat(levels).sort().values
    ranks = torch.linspace(0, len(ordered) - 1, count + 1, device=ordered.device).round().long()
    ends = ordered[ranks]
    if mixtures.cut:
        # A density that is cut off does not fall to nothing at its ends.
        bounds = torch.tensor(mixtures.cut[0].ends, dtype=ends.dtype, device=ends.device)
        ends = torch.cat([ends, bounds[bounds.isfinite()]])
    ends = ends.unique()
    if len(ends) == 1:
        ends = torch.cat([ends.nextafter(ends - 1), ends.nextafter(ends + 1)])
    return ends[:-1], ends[1:]


def _is_wide(lower: Tensor, upper: Tensor) -> Tensor:
    """Panels over more than two powers of 2, on one side of 0: they are cut by powers."""
    return (lower > 0) & (upper > 4 * lower) | (upper < 0) & (lower < 4 * upper)


def _middle(lower: Tensor, upper: Tensor) -> Tensor:
    wide = _is_wide(lower, upper)
    powers = upper.sign() * (0.5 * (lower.abs().log() + upper.abs().log())).exp()
    return torch.where(wide, powers, 0.5 * (lower + upper))


def _on_panels(
    lower: Float[Tensor, " n"], upper: Float[Tensor, " n"]
) -> tuple[Float[Tensor, "n 15"], Float[Tensor, "n 15"], Float[Tensor, "n 15"]]:
    """Points and both weights on every panel; on wide ones in the log of the distance from 0."""

    def mirrored(half: tuple[float, ...], sign: float) -> Tensor:
        numbers = torch.tensor(half, dtype=torch.float64, device=lower.device)
        return torch.cat([sign * numbers[:-1], numbers.flip(0)])

    nodes, fine, coarse = mirrored(_NODES, -1.0), mirrored(_FINE, 1.0), mirrored(_COARSE, 1.0)
    wide = _is_wide(lower, upper)
    a, b = (torch.where(wide, end.abs().log(), end) for end in (lower, upper))
    place = 0.5 * (a + b).unsqueeze(1) + 0.5 * (b - a).unsqueeze(1) * nodes
    powers = upper.sign().unsqueeze(1) * place.exp()
    points = torch.where(wide.unsqueeze(1), powers, place)
    steps = 0.5 * (b - a).abs().unsqueeze(1) * torch.where(wide.unsqueeze(1), points.abs(), 1.0)
    return points, steps * fine, steps * coarse
