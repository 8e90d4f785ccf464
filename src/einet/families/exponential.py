"""Exponential leaves, kept as means in units of the column's mean."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from einet.families.arithmetic import clipped, finite, from_interval, to_interval, within
from einet.families.base import ExponentialFamily, as_bounds
from einet.families.hyper import Numbers, as_hyper, check_lengths, check_order
from einet.families.log_concave import Truncated, fall_of_exponential
from einet.families.registry import register

__all__ = ["Exponential"]

# Means in units of the scale: float32 can hold them, whatever the outliers.
_LARGEST, _SMALLEST = 1e30, 1e-30
# Scales by which every number of the support can be divided.
_SCALES = (1e-250, 1e30)


@register
class Exponential(ExponentialFamily):
    r"""Exponential :math:`p(x) = \frac{1}{\mu} e^{-x/\mu}` over [0, ∞).

    With :math:`\tilde x = x / \text{scale}`, T(x) = x̃, θ = −1/μ̃ and A(θ) = −log(−θ). The scale is
    read off the data by ``model.initialize``. What is stored is φ = μ̃ = μ/scale. The support ends
    at 1e30.

    Args:
        min_mean: Lower bound of μ, in units of the data. Default: ``relative_floor`` times the
            column's mean. Without a bound, zeros in the data would have unbounded density.
        max_mean: Upper bound of μ. Default: none.
        relative_floor: The default lower bound, relative to the column's mean.

    Example:
        >>> family = Exponential()
        >>> parameters = torch.tensor([[0.5]])  # one variable: its mean
        >>> family.log_prob(torch.tensor([1.0]), parameters).exp()
        tensor([0.2707])
    """

    hyperparameters: ClassVar = ("min_mean", "max_mean", "relative_floor", "scale")
    largest: ClassVar = 1e30
    support: ClassVar = "numbers from 0 to 1e30"
    limits: ClassVar = {
        # NaN stands for "relative to the data".
        "min_mean": {"above": 0, "below": math.inf, "absent": math.nan},
        "max_mean": {"above": 0, "absent": math.inf},
        "relative_floor": {"above": 0, "below": math.inf},
        "scale": {"above": 0, "below": math.inf},
    }

    def __init__(
        self,
        min_mean: Numbers | None = None,
        max_mean: Numbers | None = None,
        relative_floor: Numbers = 1e-4,
    ) -> None:
        limits = self.limits
        self.min_mean = as_hyper("min_mean", min_mean, **limits["min_mean"])
        self.max_mean = as_hyper("max_mean", max_mean, **limits["max_mean"])
        self.relative_floor = as_hyper("relative_floor", relative_floor, **limits["relative_floor"])
        self.scale = torch.ones((), dtype=torch.float64)
        self.check_hyperparameters()

    def check_hyperparameters(self) -> None:
        super().check_hyperparameters()
        check_order("min_mean", self.min_mean, "max_mean", self.max_mean)
        check_lengths(
            min_mean=self.min_mean, max_mean=self.max_mean, relative_floor=self.relative_floor
        )

    @property
    def num_statistics(self) -> int:
        return 1

    def _bounds(self) -> tuple[Tensor, Tensor]:
        least = self.min_mean / self.scale
        low = torch.where(self.min_mean.isnan(), self.relative_floor, least)
        high = self.max_mean / self.scale
        return torch.minimum(low, high).clamp(min=_SMALLEST), high.clamp(min=_SMALLEST)

    def T(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch S"]:
        scaled = (x.clamp(min=0).double() / self.scale).to(x)
        return finite(scaled, power=1).unsqueeze(-1)

    def log_h(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        inside = (x >= 0) & (x <= self.largest)
        return torch.where(inside, -self.scale.log().to(x), -math.inf)

    def A(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch"]:
        return -torch.log(-theta[..., 0])

    def theta(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return -1 / phi.clamp(min=1e-30)

    def phi(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return -1 / theta

    def project(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        low, high = (bound.to(parameters) for bound in self._bounds())
        return parameters[..., 0].clamp(low, high).clamp(max=_LARGEST).unsqueeze(-1)

    def constrain(self, raw: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        return to_interval(raw[..., 0], *self._bounds()).unsqueeze(-1)

    def unconstrain(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        return from_interval(parameters[..., 0], *self._bounds()).unsqueeze(-1)

    def sample(
        self, parameters: Float[Tensor, "*batch P"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch"]:
        mean = self.mean(parameters)
        drawn = torch.empty_like(mean).exponential_(generator=generator) * mean
        return within(drawn, self.largest)

    def mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        # In float64, whose range the product of the two does not leave.
        mean = parameters[..., 0].double() * self.scale
        return within(mean.to(parameters), self.largest)

    def variance(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return self.mean(parameters).square()

    def mode(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return torch.zeros_like(parameters[..., 0])

    def log_prob_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        mean = self.mean(parameters)
        start = lower.clamp(min=0.0)
        length = torch.where(upper > start, upper - start, 0.0)
        log_length = torch.log(-torch.expm1(-length / mean))
        # An infinite start leaves nothing of an infinite length.
        return torch.where(length > 0, log_length - start / mean, -math.inf).to(kind)

    def _truncated(
        self, lower: Tensor, upper: Tensor, parameters: Tensor
    ) -> tuple[Truncated, Tensor, Tensor]:
        """The density between bounds in units of its mean, where it starts, and the mean."""
        mean, start = self.mean(parameters), lower.clamp(min=0.0)
        right = torch.where(upper > start, (upper - start) / mean, 0.0)
        cells, shape = Truncated.broadcast(fall_of_exponential, (), torch.zeros_like(right), right)
        return cells, start.expand(shape), mean.expand(shape)

    def moments_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> tuple[Float[Tensor, "*batch4"], Float[Tensor, "*batch4"]]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        cells, start, mean = self._truncated(lower, upper, parameters)
        away, variance = (each.view(start.shape) for each in cells.moments(lambda s: s))
        return (start + mean * away).to(kind), (mean.square() * variance).to(kind)

    def sample_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        cells, start, mean = self._truncated(lower, upper, parameters)
        drawn = start + mean * cells.draw(generator).view(start.shape)
        return within(clipped(drawn, lower, upper, kind), self.largest)

    def mode_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        start = lower.clamp(min=0.0).expand(torch.broadcast_shapes(lower.shape, upper.shape))
        return clipped(start.expand_as(start + parameters[..., 0]), start, upper, kind)

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        return 0.5 + torch.rand((*shape, 1), generator=generator, dtype=torch.float64)

    def adapt(self, x: Float[Tensor, "N V"], observed: Bool[Tensor, "N V"]) -> Exponential:
        inside = observed & (x >= 0) & (x <= self.largest)
        count = inside.sum(0)
        mean = torch.where(inside, x, 0.0).double().sum(0) / count.clamp(min=1)
        # A column of zeros has no scale of its own.
        scale = torch.where(mean > 0, mean.clamp(*_SCALES), 1e-3)
        return self.with_hyperparameters({"scale": torch.where(count > 0, scale, self.scale)})
