"""Gaussian leaves, kept as (μ, σ²) in standardised units."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from einet.families.arithmetic import clipped, finite, from_interval, to_interval, within
from einet.families.base import ExponentialFamily, as_bounds
from einet.families.centring import LARGEST, variance_of
from einet.families.hyper import Numbers, as_hyper, check_lengths, check_order
from einet.families.log_concave import Truncated, fall_of_gaussian
from einet.families.registry import register

__all__ = ["Gaussian"]

# The smallest variance, in units of the data's own: float32 can hold it.
_SMALLEST = 1e-30
# Scales whose squares are numbers, too.
_SCALES = (1e-140, 1e30)
_LOG_2PI = math.log(2 * math.pi)
# Half of an interval in deviations, and times their distance from the mean, up to which the first
# term of a series has all digits.
_NARROW = 1e-3


@register
class Gaussian(ExponentialFamily):
    r"""Gaussian :math:`\mathcal{N}(\mu, \sigma^2)`.

    With :math:`\tilde x = (x - \text{location}) / \text{scale}`, T(x) = (x̃, x̃²) and
    θ = (μ̃/σ̃², −1/(2σ̃²)). Location and scale are read off the data by ``model.initialize``, so
    that parameters keep their digits in float32 for data far from the origin. What is stored is
    (μ̃, σ̃²), densities are computed as −(x̃ − μ̃)²/2σ̃², and statistics of learning are counted from
    μ̃. Numbers up to 1e30 are in the support.

    A column whose values differ in the last digit of their type at most is taken for constant, with
    a millionth of its mean as its scale (0.001 at least).

    Args:
        min_variance: Lower bound of σ², in squared units of the data. Default: ``relative_floor``
            times the column's variance.
        max_variance: Upper bound of σ². Default: none.
        relative_floor: The default lower bound, relative to the column's variance.

    Example:
        >>> family = Gaussian(min_variance=1e-6, max_variance=1e-2)
        >>> parameters = torch.tensor([[0.5, 0.01]])  # one variable: mean and variance
        >>> family.log_prob(torch.tensor([0.6]), parameters).round(decimals=3)
        tensor([0.8840])
    """

    hyperparameters: ClassVar = (
        "min_variance",
        "max_variance",
        "relative_floor",
        "location",
        "scale",
    )
    kernel: ClassVar = "centred"
    largest: ClassVar = 1e30
    support: ClassVar = "real numbers from -1e30 to 1e30"
    limits: ClassVar = {
        # NaN stands for "relative to the data".
        "min_variance": {"above": 0, "below": math.inf, "absent": math.nan},
        "max_variance": {"above": 0, "absent": math.inf},
        "relative_floor": {"above": 0, "below": math.inf},
        "location": {"above": -math.inf, "below": math.inf},
        "scale": {"above": 0, "below": math.inf},
    }

    def __init__(
        self,
        min_variance: Numbers | None = None,
        max_variance: Numbers | None = None,
        relative_floor: Numbers = 1e-4,
    ) -> None:
        limits = self.limits
        self.min_variance = as_hyper("min_variance", min_variance, **limits["min_variance"])
        self.max_variance = as_hyper("max_variance", max_variance, **limits["max_variance"])
        self.relative_floor = as_hyper("relative_floor", relative_floor, **limits["relative_floor"])
        self.location = torch.zeros((), dtype=torch.float64)
        self.scale = torch.ones((), dtype=torch.float64)
        self.check_hyperparameters()

    def check_hyperparameters(self) -> None:
        super().check_hyperparameters()
        check_order("min_variance", self.min_variance, "max_variance", self.max_variance)
        check_lengths(
            min_variance=self.min_variance,
            max_variance=self.max_variance,
            relative_floor=self.relative_floor,
        )

    @property
    def num_statistics(self) -> int:
        return 2

    def _variance_bounds(self) -> tuple[Tensor, Tensor]:
        high = self.max_variance / self.scale / self.scale
        least = self.min_variance / self.scale / self.scale
        low = torch.where(self.min_variance.isnan(), self.relative_floor, least)
        return torch.minimum(low, high).clamp(min=_SMALLEST), high.clamp(min=_SMALLEST)

    def _standardised(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        # In float64 whatever the type of x: a location that is rounded would move all values.
        return finite(((x.double() - self.location) / self.scale).to(x))

    def T(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch S"]:
        z = self._standardised(x)
        return torch.stack([z, z * z], -1)

    def log_h(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        constant = -0.5 * math.log(2 * math.pi) - self.scale.log()
        return torch.where(x.abs() > self.largest, -math.inf, constant.to(x))

    def log_density(
        self, x: Float[Tensor, "*batch"], parameters: Float[Tensor, "*batch2 P"]
    ) -> Float[Tensor, "*batch3"]:
        mean, variance = parameters.unbind(-1)
        away = (self._standardised(x) - mean) / variance.sqrt()
        peak = -0.5 * torch.log(2 * math.pi * variance) - self.scale.log().to(x)
        return peak - 0.5 * away * away

    def A(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch"]:
        first, second = theta.unbind(-1)
        return -first * first / (4 * second) - 0.5 * torch.log(-2 * second)

    def theta(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return self.theta_of(self.store(phi))

    def phi(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        first, second = theta.unbind(-1)
        variance = -0.5 / second
        mean = first * variance
        return torch.stack([mean, mean * mean + variance], -1)

    def store(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch P"]:
        return torch.stack([phi[..., 0], variance_of(phi)], -1)

    def phi_of(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch S"]:
        mean, variance = parameters.unbind(-1)
        return torch.stack([mean, mean * mean + variance], -1)

    def theta_of(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch S"]:
        mean, variance = parameters.unbind(-1)
        return torch.stack([mean / variance, -0.5 / variance], -1)

    def project(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        mean, variance = parameters.unbind(-1)
        low, high = (bound.to(variance) for bound in self._variance_bounds())
        # Finite in float32 too, whatever outlier it was computed from.
        variance = variance.clamp(low, high).clamp(max=LARGEST)
        return torch.stack([mean.clamp(-LARGEST, LARGEST), variance], -1)

    def constrain(self, raw: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        mean, free = raw.unbind(-1)
        return torch.stack([mean, to_interval(free, *self._variance_bounds())], -1)

    def unconstrain(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        mean, variance = parameters.unbind(-1)
        return torch.stack([mean, from_interval(variance, *self._variance_bounds())], -1)

    def sample(
        self, parameters: Float[Tensor, "*batch P"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch"]:
        mean, variance = parameters.unbind(-1)
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        drawn = (mean + noise * variance.sqrt()) * self.scale.to(mean) + self.location.to(mean)
        return within(drawn, self.largest)

    def mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        mean = parameters[..., 0] * self.scale.to(parameters) + self.location.to(parameters)
        return within(mean, self.largest)

    def variance(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        scale = self.scale.to(parameters)
        return parameters[..., 1] * scale * scale

    def mode(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return self.mean(parameters)

    def _ends(
        self, lower: Tensor, upper: Tensor, parameters: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Both bounds in deviations from the mean, and the deviation in units of the data."""
        mean, variance = parameters.unbind(-1)
        deviation = variance.sqrt()
        # In units of the data's own, for the sake of narrow intervals far from 0.
        a, b = (
            ((bound - self.location) / self.scale - mean) / deviation for bound in (lower, upper)
        )
        return a, b, deviation * self.scale

    def log_prob_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        a, b, deviation = self._ends(lower, upper, parameters)
        # On the side where Φ is small: on the other one both bounds would be rounded to 1.
        mirrored = a + b > 0
        low, high = torch.where(mirrored, -b, a), torch.where(mirrored, -a, b)
        log_high = torch.special.log_ndtr(high)
        # Both may be −∞, which have no difference. In place, as images ask for millions of them.
        log_ratio = torch.special.log_ndtr(low).sub_(log_high.clamp(min=-1e300)).clamp_(max=0.0)
        apart = log_ratio.expm1_().neg_().log_().add_(log_high)
        if apart.numel() and bool((upper - lower < 2 * _NARROW * deviation.amax()).any()):
            # Where the two hardly differ, by the density in the middle and how it bends there.
            half = (0.5 * (upper - lower) / deviation).clamp(0.0, 1.0)
            middle = torch.where(half < 1, low + half, 0.0)
            w, u = half.square(), (half * middle).square()
            close = (2 * half).log() - 0.5 * (middle.square() + _LOG_2PI)
            narrow = (half < _NARROW) & (u < _NARROW**2)
            apart = torch.where(narrow, close + torch.log1p((u - w) / 6), apart)
        return apart.to(kind)

    def _truncated(
        self, lower: Tensor, upper: Tensor, parameters: Tensor
    ) -> tuple[Truncated, Tensor, Tensor]:
        """The density between bounds, its highest point there, and the deviation."""
        a, b, deviation = self._ends(lower, upper, parameters)
        width = (upper - lower) / deviation
        mean = parameters[..., 0] * self.scale + self.location
        below, above = a > 0, b < 0
        place = torch.where(below, lower, torch.where(above, upper, mean))
        z = torch.where(below, a, torch.where(above, b, 0.0))
        left = torch.where(below, 0.0, torch.where(above, width, -a)).clamp(min=0.0)
        right = torch.where(below, width, torch.where(above, 0.0, b)).clamp(min=0.0)
        cells, shape = Truncated.broadcast(fall_of_gaussian, (z,), left, right)
        return cells, place.expand(shape), deviation.expand(shape)

    def moments_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> tuple[Float[Tensor, "*batch4"], Float[Tensor, "*batch4"]]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        cells, place, deviation = self._truncated(lower, upper, parameters)
        away, variance = (each.view(place.shape) for each in cells.moments(lambda s, z: s))
        mean = within((place + deviation * away).to(kind), self.largest)
        return mean, (deviation.square() * variance).to(kind)

    def sample_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        cells, place, deviation = self._truncated(lower, upper, parameters)
        drawn = place + deviation * cells.draw(generator).view(place.shape)
        return within(clipped(drawn, lower, upper, kind), self.largest)

    def mode_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        return clipped(self.mean(parameters), lower, upper, kind)

    def interval_bound(
        self, width: Float[Tensor, ""], parameters: Float[Tensor, "*batch P"]
    ) -> tuple[Float[Tensor, "*batch S"], Float[Tensor, "*batch"]]:
        r"""See the base class.

        With x in the middle, w the width and u = (x − μ) w / (2σ²), the integral is at most
        p(x) w sinh(u) / u, and log(sinh(u) / u) ≤ u²/6 as well as ≤ \|u\| ≤ q u² + 1/(4q).
        """
        (mean, variance), w = parameters.unbind(-1), width / self.scale
        # Beyond q = σ²/w² the bound would fall too slowly, or rise.
        q = (variance / w.square()).clamp(max=1 / 6)
        slack = torch.where(q < 1 / 6, 0.25 / q, 0.0)
        precision = 1 / variance - 0.5 * q * (w / variance).square()
        constant = w.log() - 0.5 * torch.log(2 * math.pi * variance) + slack
        theta = torch.stack([mean * precision, -0.5 * precision], -1)
        return theta, constant - 0.5 * mean.square() * precision

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        mean = torch.randn(shape, generator=generator, dtype=torch.float64)
        return torch.stack([mean, mean * mean + 1.0], -1)

    def adapt(self, x: Float[Tensor, "N V"], observed: Bool[Tensor, "N V"]) -> Gaussian:
        inside = observed & (x.abs() <= self.largest)
        count = inside.sum(0)
        rows = count.clamp(min=1)
        kept = torch.where(inside, x, 0.0).double()
        location = kept.sum(0) / rows
        # Once more for what was rounded away: the mean of equal numbers is that number.
        location = location + torch.where(inside, kept - location, 0.0).sum(0) / rows
        deviation = torch.where(inside, kept - location, 0.0)
        # Relative to the largest, as squares of small numbers would be 0.
        largest = deviation.abs().amax(0).clamp(min=torch.finfo(torch.float64).tiny)
        scale = largest * ((deviation / largest).square_().sum(0) / rows).sqrt()
        # A column that is constant up to the rounding of its type has no scale of its own.
        constant = scale <= torch.finfo(x.dtype).eps * kept.abs().amax(0)
        scale = torch.where(constant, (1e-6 * location.abs()).clamp(min=1e-3), scale)
        known = count > 0
        return self.with_hyperparameters(
            {
                "location": torch.where(known, location, self.location),
                "scale": torch.where(known, scale.clamp(*_SCALES), self.scale),
            }
        )
