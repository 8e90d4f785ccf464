r"""Counts between two bounds: their mass, their moments and draws, also far out in a tail.

Binomial and Poisson probabilities rise up to their mode and fall beyond it, by ratios of
neighbours that get smaller and smaller. So a sum over an interval is taken from its most probable
count p outwards, and is over where what is left would be rounded away. Where deviations are so
large that this takes too many terms, it is a difference of tails, which are integrals of Gamma and
Beta densities (:mod:`einet.families.log_concave`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from einet._memory import chunks

__all__ = ["TruncatedCounts", "log_difference", "whole_bounds"]

# So many counts on each side of the most probable one are added up one by one.
_TERMS = 96
# What is left is less than this share of the sum.
_NOTHING = 1e-17
# A draw is accepted with a probability of about a half, so that nobody ever gets this far.
_MOST_ROUNDS = 1000


def whole_bounds(
    lower: Float[Tensor, "*batch"], upper: Float[Tensor, "*batch2"], most: Tensor | float
) -> tuple[Tensor, Tensor]:
    """The first and the last whole number from ``lower`` to ``upper`` and from 0 to ``most``.

    Example:
        >>> whole_bounds(torch.tensor(-0.5), torch.tensor(2.5), 7.0)
        (tensor(0.), tensor(2.))
    """
    last = upper.floor()
    last = torch.minimum(last, most.to(last)) if isinstance(most, Tensor) else last.clamp(max=most)
    return lower.ceil().clamp(min=0.0), last


def log_difference(
    larger: Float[Tensor, "*batch"], smaller: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """log(exp a − exp b) for a ≥ b, either of which may be −∞; −∞ where they are equal.

    Example:
        >>> a = torch.tensor([3.0, 1.0]).log()
        >>> log_difference(a, torch.tensor([1.0, 1.0]).log()).exp()
        tensor([2., 0.])
    """
    gap = torch.where(smaller == -torch.inf, -torch.inf, smaller - larger).clamp(max=0.0)
    return larger + torch.log(-torch.expm1(gap))


@dataclass(frozen=True)
class TruncatedCounts:
    r"""Counts i from ``first`` to ``last``, with probabilities f(i) that have one peak.

    With c the mean without bounds, Binomial and Poisson probabilities telescope:
    :math:`(i - c) f(i) = g(i - 1) - g(i)` with a flux :math:`g(i) = \gamma(i) f(i)`.

    Attributes:
        first, last: The bounds, whole numbers; nothing where first > last.
        numbers: What the functions need to know of each distribution. All are of one shape.
        mode: The most probable of all counts.
        log_prob: log f(x).
        above, below: f(x + 1) / f(x) and f(x − 1) / f(x).
        log_tail: log P(X ≥ x), or of P(X ≤ x) where it is not ``upwards``.
        flux: γ(x).
        moments_of_all: Mean and variance without bounds, and how much γ falls from i to i + 1.
    """

    first: Float[Tensor, "*cells"]
    last: Float[Tensor, "*cells"]
    numbers: tuple[Float[Tensor, "*cells"], ...]
    mode: Callable[..., Tensor]
    log_prob: Callable[..., Tensor]
    above: Callable[..., Tensor]
    below: Callable[..., Tensor]
    log_tail: Callable[..., Tensor]
    flux: Callable[..., Tensor]
    moments_of_all: Callable[..., tuple[Tensor, Tensor, Tensor]]

    @property
    def possible(self) -> Bool[Tensor, "*cells"]:
        """Where there is a count between the bounds."""
        return (self.first <= self.last) & (self.first < torch.inf)

    @property
    def peak(self) -> Float[Tensor, "*cells"]:
        """The most probable count between the bounds; 0 where there is none."""
        mode = self.mode(*self.numbers)
        inside = torch.minimum(torch.maximum(mode, self.first), self.last)
        return torch.where(self.possible, inside, 0.0)

    def log_mass(self) -> Float[Tensor, "*cells"]:
        """log P(first ≤ X ≤ last); −∞ where there is no count."""
        peak = self.peak
        sums, _, _, whole = self._add_up(peak)
        log = self.log_prob(peak, *self.numbers) + sums.log()
        rest = (~whole & self.possible).nonzero(as_tuple=True)
        if len(rest[0]):
            log[rest] = self._at(rest)._by_tails()
        return torch.where(self.possible, log, -torch.inf)

    def moments(self) -> tuple[Float[Tensor, "*cells"], Float[Tensor, "*cells"]]:
        """Mean and variance between the bounds; NaN where there is no count."""
        peak = self.peak
        _, mean, variance, whole = self._add_up(peak)
        mean = peak + mean
        rest = (~whole & self.possible).nonzero(as_tuple=True)
        if len(rest[0]):
            mean[rest], variance[rest] = self._at(rest)._by_fluxes()
        nothing = torch.full_like(mean, torch.nan)
        return tuple(torch.where(self.possible, each, nothing) for each in (mean, variance))  # type: ignore[return-value]

    def _at(self, cells: Any) -> TruncatedCounts:
        numbers = tuple(number[cells] for number in self.numbers)
        return replace(self, first=self.first[cells], last=self.last[cells], numbers=numbers)

    def _add_up(self, peak: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Σ f(i) / f(p), mean about p and variance, and where these are complete."""
        flat, peaks, shape = self._flat(), peak.reshape(-1), peak.shape
        parts = [
            flat._at(some)._add_up_some(peaks[some])
            for some in chunks(len(peaks), "block", 48 * _TERMS, peak.device)
        ]
        if not parts:
            return peak, peak, peak, torch.ones_like(self.possible)
        mass, mean, variance, whole = (
            torch.cat(each).view(shape) for each in zip(*parts, strict=True)
        )
        return mass, mean, variance, whole

    def _add_up_some(self, peak: Float[Tensor, " cells"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        away = torch.arange(_TERMS, dtype=peak.dtype, device=peak.device)
        numbers = tuple(number.unsqueeze(-1) for number in self.numbers)
        mass = self.possible.to(peak)
        linear, square = torch.zeros_like(mass), torch.zeros_like(mass)
        whole = torch.ones_like(self.possible)
        for sign, end, ratio in ((1.0, self.last, self.above), (-1.0, self.first, self.below)):
            place = peak.unsqueeze(-1) + sign * away
            step = ratio(place, *numbers)
            inside = sign * (end.unsqueeze(-1) - place) >= 1
            terms = torch.where(inside & self.possible.unsqueeze(-1), step, 0.0).cumprod(-1)
            mass, linear = mass + terms.sum(-1), linear + sign * (terms @ (away + 1))
            square = square + terms @ (away + 1).square()
            # What is left is a geometric series at most; its second moment lasts longest.
            last = step[:, -1].clamp(0.0, 1.0)
            rest = terms[:, -1] * _TERMS**2 / (1 - last).clamp(min=1e-3) ** 3
            whole = whole & (rest <= _NOTHING)
        mean = linear / mass
        return mass, mean, (square / mass - mean.square()).clamp(min=0.0), whole

    def _by_tails(self) -> Float[Tensor, " cells"]:
        """The log mass as a difference of tails, on the side where these are small."""
        mode = self.mode(*self.numbers)

        def tail(start: Tensor, upwards: bool) -> Tensor:
            return self.log_tail(start, *self.numbers, upwards=upwards)

        beyond, before = tail(self.last + 1, True), tail(self.first - 1, False)
        right = log_difference(tail(self.first, True), beyond)
        left = log_difference(tail(self.last, False), before)
        middle = torch.log1p(-(beyond.exp() + before.exp()))
        return torch.where(self.first > mode, right, torch.where(self.last < mode, left, middle))

    def _by_fluxes(self) -> tuple[Float[Tensor, " cells"], Float[Tensor, " cells"]]:
        r"""Mean and variance by sums that telescope.

        :math:`\sum_i (i - c)^2 f(i)` is, by parts, :math:`(j - c) g(j-1) - (k - c) g(k) +
        \sum_{i=j}^{k-1} g(i)` for bounds j and k.
        """
        log_mass = self._by_tails()
        centre, spread, slope = self.moments_of_all(*self.numbers)

        def flux(x: Tensor) -> Tensor:
            at = x.clamp(0.0, 2.0**53)
            share = (self.log_prob(at, *self.numbers) - log_mass).exp()
            return torch.where(x == at, self.flux(at, *self.numbers) * share, 0.0)

        before, after = flux(self.first - 1), flux(self.last)
        last = self.last.clamp(max=2.0**53)
        at_last = (self.log_prob(last, *self.numbers) - log_mass).exp()
        at_last = torch.where(self.last == last, at_last, 0.0)
        inner = spread * (1 - at_last) - slope * (before - flux(self.last - 1))
        shift = before - after
        square = (self.first - centre) * before - (last - centre) * after + inner
        mean = torch.minimum(torch.maximum(centre + shift, self.first), self.last)
        return mean, (square - shift.square()).clamp(min=0.0)

    def draw(self, generator: torch.Generator | None = None) -> Float[Tensor, "*cells"]:
        """Exact draws, by rejection; NaN where there is no count.

        Up to where probabilities have fallen by more than a nat they lie below a constant, and
        beyond below a geometric series, as their logarithms are concave.
        """
        return self._flat()._draw(generator).view(self.first.shape)

    def _flat(self) -> TruncatedCounts:
        """The same with all cells in one row."""
        bounds = (self.first.reshape(-1), self.last.reshape(-1))
        numbers = tuple(number.reshape(-1) for number in self.numbers)
        return replace(self, first=bounds[0], last=bounds[1], numbers=numbers)

    def _draw(self, generator: torch.Generator | None) -> Float[Tensor, " cells"]:
        result = torch.full_like(self.first, torch.nan)
        left_over = self.possible.nonzero().flatten()
        rest = self._at(left_over)
        peak = rest.peak
        sides = [
            (sign, *rest._near(peak, sign, sign * (end - peak)))
            for sign, end in ((-1.0, rest.first), (1.0, rest.last))
        ]
        for _ in range(_MOST_ROUNDS):
            if not len(left_over):
                return result
            away, log_bound, chance = _propose(sides, generator)
            accepted = chance.log() + log_bound <= -rest._fall(peak, away)
            result[left_over[accepted]] = (peak + away)[accepted]
            again = ~accepted
            left_over, rest, peak = left_over[again], rest._at(again), peak[again]
            sides = [(sign, *(tensor[again] for tensor in side)) for sign, *side in sides]
        raise RuntimeError("draws of truncated counts were never accepted: parameters are NaN")

    def _fall(self, peak: Tensor, away: Tensor) -> Tensor:
        """log f(p) − log f(p + away)."""
        return self.log_prob(peak, *self.numbers) - self.log_prob(peak + away, *self.numbers)

    def _near(self, peak: Tensor, sign: float, limit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The limit, how far away f has first fallen by a nat, and by how much; ∞ if nowhere."""
        low, high = torch.zeros_like(limit), limit.clamp(max=2.0**40) + 1
        while bool((high - low > 1).any()):
            middle = ((low + high) / 2).floor()
            deep = self._fall(peak, sign * torch.minimum(middle, limit)) > 1
            low, high = torch.where(deep, low, middle), torch.where(deep, middle, high)
        fall = self._fall(peak, sign * torch.minimum(high, limit))
        return limit, high, torch.where(high > limit, torch.inf, fall)


def _propose(
    sides: list[tuple[Any, ...]], generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Distances with a sign, the log of their bound, and a uniform number to accept them by."""
    masses, tails = [], []
    for sign, limit, start, fall in sides:
        # The peak itself belongs to the right.
        flat = start - 1 if sign < 0 else start
        rate = torch.where(fall < torch.inf, fall / start, 1.0)
        number = (limit - start + 1).clamp(min=0.0)
        tail = torch.exp(-fall) * torch.expm1(-rate * number) / torch.expm1(-rate)
        masses += [flat, torch.where(number > 0, tail, 0.0)]
        tails.append((rate, number))
    cumulative = torch.stack(masses, -1).cumsum(-1)
    kind: Any = {"dtype": cumulative.dtype, "device": cumulative.device}
    which, where, chance = torch.rand((3, len(cumulative)), generator=generator, **kind)
    piece = (cumulative <= (which * cumulative[:, -1]).unsqueeze(-1)).sum(-1).clamp_(max=3)
    away, log_bound = torch.zeros_like(where), torch.zeros_like(where)
    for number, (sign, _, start, fall) in enumerate(sides):
        rate, count = tails[number]
        flat = torch.minimum((where * masses[2 * number]).floor(), masses[2 * number] - 1)
        further = (torch.log1p(where * torch.expm1(-rate * count)) / -rate).floor()
        further = torch.minimum(further.clamp(min=0.0), count - 1)
        beyond = piece == 2 * number + 1
        away = torch.where(piece == 2 * number, sign * (flat + (1.0 if sign < 0 else 0.0)), away)
        away = torch.where(beyond, sign * (start + further), away)
        log_bound = torch.where(beyond, -fall - rate * further, log_bound)
    return away, log_bound, chance
