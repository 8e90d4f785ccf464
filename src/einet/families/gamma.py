"""Gamma leaves, kept as shape and mean."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from einet.families.arithmetic import (
    clipped,
    finite,
    from_interval,
    log_standard_gamma,
    to_interval,
    within,
)
from einet.families.base import ExponentialFamily, as_bounds
from einet.families.deviance import deviance, stirling_error
from einet.families.hyper import Numbers, as_hyper, check_order
from einet.families.log_concave import log_mass_of_gamma, truncated_gamma
from einet.families.registry import register

__all__ = ["Gamma"]

# Means in units of the column's scale: as wide as allows to square them in float32.
_MEANS = (1e-15, 1e15)
# Scales by which every number of the support can be divided.
_SCALES = (1e-250, 1e30)
# With larger shapes the digits that α log x − log Γ(α) leaves would not do.
_LARGEST_SHAPE = 1e8
# Below this value of log E[x] − E[log x] its start is exact to as many digits as the data hold.
_CONCENTRATED = 1e-8
# Where there is no mode the density grows without bound towards 0: a small fraction of the mean.
_NEAR_ZERO = 1e-6


@register
class Gamma(ExponentialFamily):
    r"""Gamma :math:`p(x) = \beta^\alpha x^{\alpha-1} e^{-\beta x} / \Gamma(\alpha)` over (0, ∞).

    With :math:`\tilde x = x / \text{scale}`, h(x) = 1/x, T(x) = (log x̃, x̃), θ = (α, −β̃) and
    A(θ) = log Γ(α) − α log β̃. The scale is read off the data by ``model.initialize``. What is
    stored is (α, μ̃) with the mean μ̃ = α/β̃: bounding the shape at a given mean is then the exact
    constrained maximum of the likelihood. μ̃ lies between 1e-15 and 1e15. Zeros in the data are
    outside the support, which ends at 1e30.

    Args:
        min_shape: Lower bound of α.
        max_shape: Upper bound of α, 1e8 at most: the relative standard deviation is 1/√α at least.

    Example:
        >>> family = Gamma()
        >>> parameters = torch.tensor([[2.0, 4.0]])  # one variable: shape and mean
        >>> family.log_prob(torch.tensor([1.0]), parameters).exp()
        tensor([0.1516])
    """

    hyperparameters: ClassVar = ("min_shape", "max_shape", "scale")
    largest: ClassVar = 1e30
    support: ClassVar = "numbers above 0, up to 1e30"
    filler: ClassVar = 1.0
    limits: ClassVar = {
        "min_shape": {"above": 0, "below": math.inf},
        "max_shape": {"above": 0, "at_most": _LARGEST_SHAPE},
        "scale": {"above": 0, "below": math.inf},
    }

    def __init__(
        self,
        min_shape: Numbers = 1e-2,
        max_shape: Numbers = 1e5,
    ) -> None:
        self.min_shape = as_hyper("min_shape", min_shape, **self.limits["min_shape"])
        self.max_shape = as_hyper("max_shape", max_shape, **self.limits["max_shape"])
        self.scale = torch.ones((), dtype=torch.float64)
        self.check_hyperparameters()

    def check_hyperparameters(self) -> None:
        super().check_hyperparameters()
        check_order("min_shape", self.min_shape, "max_shape", self.max_shape)

    @property
    def num_statistics(self) -> int:
        return 2

    def T(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch S"]:
        # Not the logarithm of the quotient, which may be too small a number.
        inside = torch.where(self._inside(x), x, 1.0).double()
        log = inside.log() - self.scale.log()
        scaled = finite((inside / self.scale).to(x), power=1)
        return torch.stack([log.to(x), scaled], -1)

    def _inside(self, x: Tensor) -> Bool[Tensor, "*batch"]:
        return (x > 0) & (x <= self.largest)

    def log_h(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        inside = self._inside(x)
        return torch.where(inside, -torch.where(inside, x, 1.0).log(), -math.inf)

    def log_density(
        self, x: Float[Tensor, "*batch"], parameters: Float[Tensor, "*batch2 P"]
    ) -> Float[Tensor, "*batch3"]:
        (shape, mean), (log, scaled) = parameters.unbind(-1), self.T(x).unbind(-1)
        # That of α events where α x̃/μ̃ are expected, by the density of their time.
        expected = (shape / mean) * scaled
        away = deviance(shape, expected, mean.log() - log)
        constant = 0.5 * (shape / (2 * math.pi)).log() - stirling_error(shape)
        return constant - away - log - self.scale.log().to(x)

    def A(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch"]:
        shape, rate = theta[..., 0], -theta[..., 1]
        return torch.lgamma(shape) - shape * rate.log()

    def theta(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return self.theta_of(self.store(phi))

    def phi(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        shape, rate = theta[..., 0], -theta[..., 1]
        return torch.stack([torch.digamma(shape) - rate.log(), shape / rate], -1)

    def store(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch P"]:
        mean_log, mean = phi.double().unbind(-1)
        # The best shape for the mean as it is bounded: that of the data's own would not be it.
        bounded = mean.clamp(*_MEANS)
        spread = bounded.log() - mean_log + (mean / bounded - 1)
        return torch.stack([_solve_shape(spread), bounded], -1).to(phi)

    def phi_of(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch S"]:
        shape, mean = parameters.unbind(-1)
        return torch.stack([torch.digamma(shape) - shape.log() + mean.log(), mean], -1)

    def theta_of(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch S"]:
        shape, mean = parameters.unbind(-1)
        return torch.stack([shape, -shape / mean], -1)

    def project(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        shape, mean = parameters.unbind(-1)
        shape = shape.clamp(self.min_shape.to(shape), self.max_shape.to(shape))
        return torch.stack([shape, mean.clamp(*_MEANS)], -1)

    def constrain(self, raw: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        shape, log_mean = raw.unbind(-1)
        low, high = (math.log(bound) for bound in _MEANS)
        mean = log_mean.clamp(low, high).exp().clamp(*_MEANS)
        return torch.stack([to_interval(shape, self.min_shape, self.max_shape), mean], -1)

    def unconstrain(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        shape, mean = parameters.unbind(-1)
        return torch.stack([from_interval(shape, self.min_shape, self.max_shape), mean.log()], -1)

    def sample(
        self, parameters: Float[Tensor, "*batch P"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch"]:
        shape = parameters[..., 0]
        drawn = log_standard_gamma(shape, generator).exp() / shape * self.mean(parameters)
        return within(drawn, self.largest).clamp(min=torch.finfo(drawn.dtype).tiny)

    def mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        # In float64, whose range the product of the two does not leave.
        mean = parameters[..., 1].double() * self.scale
        return within(mean.to(parameters), self.largest)

    def variance(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return self.mean(parameters).square() / parameters[..., 0]

    def mode(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        shape = parameters[..., 0]
        mode = torch.where(shape > 1, (shape - 1) / shape, _NEAR_ZERO) * self.mean(parameters)
        return mode.clamp(min=torch.finfo(mode.dtype).tiny)

    def log_prob_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        return log_mass_of_gamma(parameters[..., 0], self._mean(parameters), lower, upper).to(kind)

    def _mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        """E[x] in float64, where no bound is needed."""
        return parameters[..., 1].double() * self.scale

    def moments_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> tuple[Float[Tensor, "*batch4"], Float[Tensor, "*batch4"]]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        bounds = (self._mean(parameters), lower, upper)
        cells, place, size = truncated_gamma(parameters[..., 0], *bounds)
        away, spread = (each.view(size) for each in cells.moments(lambda s, *_: torch.expm1(s)))
        mean = within((place * (1 + away)).to(kind), self.largest)
        return mean, (place.square() * spread).to(kind)

    def sample_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        bounds = (self._mean(parameters), lower, upper)
        cells, place, size = truncated_gamma(parameters[..., 0], *bounds)
        drawn = clipped(place * cells.draw(generator).view(size).exp(), lower, upper, kind)
        return within(drawn, self.largest).clamp(min=torch.finfo(kind).tiny)

    def mode_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        shape, mean = parameters[..., 0], self._mean(parameters)
        # Without a mode, as near to the lower end, or to 0, as is of use.
        least = torch.maximum(lower, _NEAR_ZERO * torch.minimum(mean, upper))
        inner = torch.maximum((shape - 1) / shape * mean, least)
        mode = clipped(torch.where(shape > 1, inner, least), lower, upper, kind)
        return torch.where(upper > 0, mode, math.nan)

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        drawn = torch.rand((*shape, 2), generator=generator, dtype=torch.float64)
        return self.phi_of(drawn * torch.tensor([2.0, 1.0]) + torch.tensor([1.0, 0.5]))

    def adapt(self, x: Float[Tensor, "N V"], observed: Bool[Tensor, "N V"]) -> Gamma:
        inside = observed & self._inside(x)
        count = inside.sum(0)
        mean_log = torch.where(inside, x, 1.0).double().log().sum(0) / count.clamp(min=1)
        scale = mean_log.exp().clamp(*_SCALES)
        return self.with_hyperparameters({"scale": torch.where(count > 0, scale, self.scale)})


def _solve_shape(spread: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The α with log α − ψ(α) = spread, by Newton's method for 1/α from a start within 2 %."""
    # Shapes beyond 1e-12 and 1e14 are of no use to anybody, and polygamma functions overflow.
    spread = spread.clamp(1e-14, 1e12)
    root = ((spread - 3).square() + 24 * spread).sqrt()
    # Two forms of one root of a quadratic equation, each where it does not cancel.
    start = torch.where(
        spread < 3, (3 - spread + root) / (12 * spread), 2 / (spread - 3 + root).clamp(min=1)
    )
    shape = start
    for _ in range(5):
        wrong = shape.log() - torch.digamma(shape) - spread
        shape = shape / (1 + wrong / (1 - shape * torch.polygamma(1, shape)))
    return torch.where(spread > _CONCENTRATED, shape, start)
