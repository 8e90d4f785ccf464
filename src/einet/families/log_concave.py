r"""Densities between two bounds: their mass, their moments and draws, also far out in a tail.

The exponential families over the reals are log-concave in a coordinate of their own: a Gaussian as
it is, a Gamma in log x, a Beta in the logit of x. Between two bounds such a density has one highest
point p, and falls on both sides of it ever faster:

.. math:: \log f(p + s) = \log f(p) - \text{fall}(s), \quad \text{fall convex},\ \text{fall}(0) = 0.

So all that matters lies where the fall is less than some forty nats, and a fixed quadrature rule on
either side has all digits, whatever the parameters and however far out the bounds are. Nothing is a
difference of two tails. (Continued fractions of incomplete gamma and beta functions would need more
terms the larger the parameters are.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from einet._memory import chunks
from einet.families.deviance import deviance, stirling_error

__all__ = [
    "Truncated",
    "fall_of_exponential",
    "fall_of_gaussian",
    "log_mass_of_beta",
    "log_mass_of_gamma",
    "truncated_beta",
    "truncated_gamma",
]

# What has fallen by more nats than this adds nothing to a float64, even to its moments.
_DEPTH = 42.0
# Where panels of the rule begin, with so many points in each. Coordinates are such that a fall
# bends within a few units; further out it is a straight line, however far that goes.
_PANELS = ((0.0, 40), (6.0, 28), (14.0, 24), (38.0, 28))
# Distances between these are told apart, to a hundredth of themselves by so many halvings.
_NEAREST, _FARTHEST, _HALVINGS = 1e-60, 1e15, 15
# A draw is accepted with a probability of 0.46 at least, so that nobody ever gets this far.
_MOST_ROUNDS = 1000

#: The fall at distances ``s``, below 0 to the left, given some numbers of each density.
Fall = Callable[..., Tensor]


@dataclass(frozen=True)
class Truncated:
    """Log-concave densities between bounds, seen from their highest points; all ``[cells]``.

    Attributes:
        fall: ``fall(s, *numbers)`` as above.
        numbers: What it needs to know of each density.
        left, right: How far away the bounds are; infinite where there is none.

    Example:
        >>> zero, one = torch.zeros(1).double(), torch.ones(1).double()
        >>> half = Truncated(fall_of_gaussian, (zero,), zero, one * torch.inf)
        >>> half.log_mass().exp() ** 2 * 2  # the integral of exp(−s²/2) over half the line
        tensor([3.1416], dtype=torch.float64)
    """

    fall: Fall
    numbers: tuple[Float[Tensor, " cells"], ...]
    left: Float[Tensor, " cells"]
    right: Float[Tensor, " cells"]

    @classmethod
    def broadcast(
        cls, fall: Fall, numbers: tuple[Tensor, ...], left: Tensor, right: Tensor
    ) -> tuple[Truncated, torch.Size]:
        """One of tensors that broadcast with each other, and the shape of its answers."""
        every = torch.broadcast_tensors(*numbers, left, right)
        flat = [tensor.reshape(-1) for tensor in every]
        return cls(fall, tuple(flat[:-2]), flat[-2], flat[-1]), every[0].shape

    def log_mass(self) -> Float[Tensor, " cells"]:
        """The log of ∫ exp(−fall(s)) ds between the bounds; −∞ where these are the same."""
        parts = [weights.sum(-1) for _, weights, _ in self._rules()]
        return torch.cat(parts).log() if parts else self.left.new_empty(0)

    def moments(self, away: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        """Mean and variance of ``away(s, *numbers)``; NaN where there is no mass."""
        means, variances = [self.left.new_empty(0)], [self.left.new_empty(0)]
        for s, weights, numbers in self._rules():
            values, total = away(s, *numbers), weights.sum(-1, keepdim=True)
            share = weights / total
            mean = (share * values).sum(-1, keepdim=True)
            means.append(mean[:, 0])
            variances.append((share * (values - mean).square()).sum(-1))
        return torch.cat(means), torch.cat(variances)

    def _rules(self) -> Any:
        """Points, weights times exp(−fall), and numbers with an axis for points; some at a time."""
        device = self.left.device
        for some in chunks(len(self.left), "block", 16 * _PANELS[0][1], device):
            part = self._at(some)
            numbers = tuple(number.unsqueeze(-1) for number in part.numbers)
            panels = []
            for sign, limit in ((-1.0, part.left), (1.0, part.right)):
                reach = part._reach(sign, limit, _DEPTH)[0].unsqueeze(-1)
                ends = [*(start for start, _ in _PANELS[1:]), torch.inf]
                for (start, count), end in zip(_PANELS, ends, strict=True):
                    length = (reach.clamp(max=end) - start).clamp(min=0.0)
                    if start and not bool((length > 0).any()):
                        break
                    points, weights = _rule(count, device)
                    # No further than the bound: behind it the density may rise without end.
                    s = sign * torch.minimum(start + length * points, reach)
                    panels.append((s, length * weights * torch.exp(-part.fall(s, *numbers))))
            yield *(torch.cat(each, -1) for each in zip(*panels, strict=True)), numbers

    def _at(self, cells: Any) -> Truncated:
        numbers = tuple(number[cells] for number in self.numbers)
        return Truncated(self.fall, numbers, self.left[cells], self.right[cells])

    def _reach(self, sign: float, limit: Tensor, depth: float) -> tuple[Tensor, Tensor]:
        """How far away it has fallen by about ``depth``, or the bound if that is nearer; the fall.

        By halving logarithms: a hundredth more or less does not matter.
        """
        high = limit.clamp(_NEAREST, _FARTHEST).log()
        low = torch.full_like(high, _NEAREST).log()
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            deep = self.fall(sign * middle.exp(), *self.numbers) > depth
            low, high = torch.where(deep, low, middle), torch.where(deep, middle, high)
        reach = torch.minimum(high.exp(), limit)
        return reach, self.fall(sign * reach, *self.numbers)

    def draw(self, generator: torch.Generator | None = None) -> Float[Tensor, " cells"]:
        r"""A distance s for each density, by rejection; exact.

        With c = fall(t) at some t > 0, convexity gives fall(s) ≥ c s / t for all s ≥ t. So the
        density lies below a constant up to t and below an exponential beyond; with c near 1 at
        least 0.46 of all proposals are accepted. NaN where there is no mass.
        """
        result = torch.full_like(self.left, torch.nan)
        # A density without mass has nothing to be drawn.
        left_over = (self.left + self.right > 0).nonzero().flatten()
        for _ in range(_MOST_ROUNDS):
            if not len(left_over):
                return result
            rest = self._at(left_over)
            drawn, accepted = rest._propose(generator)
            result[left_over[accepted]] = drawn[accepted]
            left_over = left_over[~accepted]
        raise RuntimeError("draws from truncated densities were never accepted: parameters are NaN")

    def _propose(self, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        sides = ((-1.0, self.left), (1.0, self.right))
        near = [self._reach(sign, limit, 1.0) for sign, limit in sides]
        masses, decays = [], []
        for (_, limit), (t, c) in zip(sides, near, strict=True):
            rate = torch.where(t > 0, c / t, 1.0)
            beyond = torch.where(limit > t, -torch.expm1(-rate * (limit - t)), 0.0)
            masses += [t, torch.where(beyond > 0, torch.exp(-c) * beyond / rate, 0.0)]
            decays.append((rate, beyond))
        cumulative = torch.stack(masses, -1).cumsum(-1)
        shape = (3, len(self.left))
        kind: Any = {"dtype": self.left.dtype, "device": self.left.device}
        which, where, chance = torch.rand(shape, generator=generator, **kind)
        piece = (cumulative <= (which * cumulative[:, -1]).unsqueeze(-1)).sum(-1).clamp_(max=3)
        s, log_bound = torch.zeros_like(where), torch.zeros_like(where)
        for number, (sign, _) in enumerate(sides):
            (t, c), (rate, beyond) = near[number], decays[number]
            further = -torch.log1p(-where * beyond) / rate
            s = torch.where(piece == 2 * number, sign * where * t, s)
            s = torch.where(piece == 2 * number + 1, sign * (t + further), s)
            log_bound = torch.where(piece == 2 * number + 1, -c - rate * further, log_bound)
        accepted = chance.log() + log_bound <= -self.fall(s, *self.numbers)
        return s, accepted


def fall_of_gaussian(s: Tensor, z: Tensor) -> Tensor:
    """In units of the deviation, from z deviations above the mean."""
    return s * (z + 0.5 * s)


def fall_of_exponential(s: Tensor) -> Tensor:
    """In units of the mean, to the right."""
    return s


# -- Gamma -----------------------------------------------------------------------------------------


def log_mass_of_gamma(shape: Tensor, mean: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """log P(lower ≤ X ≤ upper) of Gamma distributions (float64), with broadcasting.

    Example:
        >>> shape, one = torch.tensor([1.0, 1e6]).double(), torch.ones(()).double()
        >>> log_mass_of_gamma(shape, one, 2 * one, one * torch.inf)
        tensor([-2.0000e+00, -3.0686e+05], dtype=torch.float64)
    """
    cells, place, size = truncated_gamma(shape, mean, lower, upper)
    log_ratio = place.log() - mean.log()
    peak = 0.5 * (shape / (2 * math.pi)).log() - stirling_error(shape)
    peak = peak - deviance(shape, shape * log_ratio.exp(), -log_ratio)
    return peak + cells.log_mass().view(size)


def truncated_gamma(
    shape: Tensor, mean: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Truncated, Tensor, torch.Size]:
    """In log x: the densities, their highest points in x, and the shape of answers."""
    lower, upper = torch.broadcast_tensors(lower.clamp(min=0.0), upper)
    some = (lower < upper) & (lower < torch.inf)
    lower, upper = torch.where(some, lower, 1.0), torch.where(some, upper, 1.0)
    place = torch.minimum(torch.maximum(mean, lower), upper)
    left = torch.where(place > lower, torch.log1p((place - lower) / lower), 0.0)
    right = torch.where(upper > place, torch.log1p((upper - place) / place), 0.0)
    # Smaller ratios lie as far below everything as this one.
    ratio = (place / mean).clamp(min=1e-300)
    cells, size = Truncated.broadcast(_fall_of_gamma, (shape, ratio), left, right)
    return cells, place.expand(size), size


def _fall_of_gamma(s: Tensor, shape: Tensor, ratio: Tensor) -> Tensor:
    """In the logarithm of x, from x = ratio · mean."""
    return shape * (ratio * (torch.expm1(s) - s) + (ratio - 1) * s)


# -- Beta ------------------------------------------------------------------------------------------


def log_mass_of_beta(alpha: Tensor, beta: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """log P(lower ≤ X ≤ upper) of Beta distributions (float64), with broadcasting.

    Example:
        >>> alpha, one = torch.tensor([1.0, 1e6]).double(), torch.ones(()).double()
        >>> log_mass_of_beta(alpha, one, 0 * one, one / 2)
        tensor([-6.9315e-01, -6.9315e+05], dtype=torch.float64)
    """
    cells, place, size = truncated_beta(alpha, beta, lower, upper)
    total = alpha + beta
    rest = cells.numbers[3].view(size)
    errors = stirling_error(total) - stirling_error(alpha) - stirling_error(beta)
    peak = 0.5 * (alpha / total * beta / (2 * math.pi)).log() + errors
    peak = peak - deviance(alpha, total * place) - deviance(beta, total * rest)
    return peak + cells.log_mass().view(size)


def truncated_beta(
    alpha: Tensor, beta: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Truncated, Tensor, torch.Size]:
    """In the logit of x: the densities, their highest points in x, and the shape of answers."""
    lower, upper = torch.broadcast_tensors(lower.clamp(min=0.0), upper.clamp(max=1.0))
    some = lower < upper
    lower, upper = torch.where(some, lower, 0.5), torch.where(some, upper, 0.5)
    middle = alpha / (alpha + beta)
    place = torch.minimum(torch.maximum(middle, lower), upper)
    # 1 − x has more digits than x where it is that of a Beta near 1.
    rest = torch.where(place == middle, beta / (alpha + beta), 1 - place)
    down, up = place - lower, upper - place
    left = torch.where(down > 0, torch.log1p(down / lower) + torch.log1p(down / rest), 0.0)
    right = torch.where(up > 0, torch.log1p(up / place) + torch.log1p(up / (1 - upper)), 0.0)
    cells, size = Truncated.broadcast(_fall_of_beta, (alpha, beta, place, rest), left, right)
    return cells, place.expand(size), size


def _fall_of_beta(s: Tensor, alpha: Tensor, beta: Tensor, x: Tensor, rest: Tensor) -> Tensor:
    """In the logit of x, from x, with ``rest`` = 1 − x."""
    # To the left it is the same of 1 − x.
    to_right = s >= 0
    first, second = torch.where(to_right, alpha, beta), torch.where(to_right, beta, alpha)
    near, far, s = torch.where(to_right, x, rest), torch.where(to_right, rest, x), s.abs()
    # Two forms of one thing, each where neither terms nor digits are lost.
    rising = torch.log1p(near * torch.expm1(s.clamp(max=30.0)))
    small, large = torch.log(near + far * torch.exp(-s)), torch.log1p(far * torch.expm1(-s))
    settling = second * s + (alpha + beta) * torch.where(near < 0.5, small, large)
    return torch.where((near < 0.5) & (s < 30), (alpha + beta) * rising - first * s, settling)


@cache
def _rule(
    count: int, device: torch.device
) -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
    """Gauss and Legendre's points and weights on [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return torch.tensor((points + 1) / 2, device=device), torch.tensor(weights / 2, device=device)
