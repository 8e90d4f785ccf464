"""Beta leaves, kept as their two concentrations."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Real
from torch import Tensor

from einet.families.arithmetic import clipped, from_interval, log_standard_gamma, to_interval
from einet.families.base import ExponentialFamily, as_bounds
from einet.families.hyper import Numbers, as_hyper, check_order
from einet.families.log_concave import log_mass_of_beta, truncated_beta
from einet.families.registry import register

__all__ = ["Beta"]

# Where the density grows without bound towards an end, its "mode" is this far from the end.
_NEAR_END = 1e-6
_STEPS = 10
# With larger concentrations the digits that α log x − log B(α, β) leaves would not do.
_LARGEST_CONCENTRATION = 1e8
# Where θ is asked for without regard to bounds: further out float64 cannot tell φ apart.
_WIDEST = (1e-9, 1e9)


@register
class Beta(ExponentialFamily):
    r"""Beta :math:`p(x) = x^{\alpha-1} (1-x)^{\beta-1} / B(\alpha, \beta)` over the open (0, 1).

    h(x) = 1/(x (1 − x)), T(x) = (log x, log(1 − x)), θ = (α, β), A(θ) = log B(α, β) and
    φ = (ψ(α) − ψ(α+β), ψ(β) − ψ(α+β)). What is stored is (α, β). The ends 0 and 1 are outside
    the support: data that reach them must be moved inwards first.

    Args:
        min_concentration: Lower bound of α and β. Below 1 the density is unbounded at an end.
        max_concentration: Upper bound of α and β, 1e8 at most.

    Example:
        >>> family = Beta()
        >>> parameters = torch.tensor([[2.0, 2.0]])  # one variable
        >>> family.log_prob(torch.tensor([0.5]), parameters).exp()
        tensor([1.5000])
    """

    hyperparameters: ClassVar = ("min_concentration", "max_concentration")
    largest: ClassVar = 1.0
    support: ClassVar = "numbers strictly between 0 and 1"
    filler: ClassVar = 0.5
    limits: ClassVar = {
        "min_concentration": {"above": 0, "below": math.inf},
        "max_concentration": {"above": 0, "at_most": _LARGEST_CONCENTRATION},
    }

    def __init__(
        self,
        min_concentration: Numbers = 1e-2,
        max_concentration: Numbers = 1e5,
    ) -> None:
        limits = self.limits
        self.min_concentration = as_hyper(
            "min_concentration", min_concentration, **limits["min_concentration"]
        )
        self.max_concentration = as_hyper(
            "max_concentration", max_concentration, **limits["max_concentration"]
        )
        self.check_hyperparameters()

    def check_hyperparameters(self) -> None:
        super().check_hyperparameters()
        check_order(
            "min_concentration",
            self.min_concentration,
            "max_concentration",
            self.max_concentration,
        )

    @property
    def num_statistics(self) -> int:
        return 2

    def _bounds(self, like: Tensor) -> tuple[Tensor, Tensor]:
        bounds = self.min_concentration, self.max_concentration
        low, high = (bound.to(like).unsqueeze(-1) for bound in bounds)
        return low, high

    def T(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch S"]:
        inside = torch.where((x > 0) & (x < 1), x, 0.5)
        return torch.stack([inside.log(), torch.log1p(-inside)], -1)

    def log_h(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        return torch.where((x > 0) & (x < 1), -self.T(x).sum(-1), -math.inf)

    def A(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch"]:
        return torch.lgamma(theta).sum(-1) - torch.lgamma(theta.sum(-1))

    def theta(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        wide = phi.double()
        low, high = (wide.new_full((), bound) for bound in _WIDEST)
        return _solve_concentrations(wide, low, high).to(phi)

    def phi(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return torch.digamma(theta) - torch.digamma(theta.sum(-1, keepdim=True))

    def store(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch P"]:
        # Where the bounds matter, the best within them: no projection of the best would be it.
        wide = phi.double()
        return _solve_concentrations(wide, *self._bounds(wide)).to(phi)

    def phi_of(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch S"]:
        return self.phi(parameters)

    def theta_of(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch S"]:
        return parameters

    def project(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        return _rescaled(parameters, *self._bounds(parameters))

    def constrain(self, raw: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        return to_interval(raw, *self._bounds(raw))

    def unconstrain(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        return from_interval(parameters, *self._bounds(parameters))

    def sample(
        self, parameters: Float[Tensor, "*batch P"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch"]:
        first, second = log_standard_gamma(parameters, generator).unbind(-1)
        return _inwards((first - second).sigmoid())

    def mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return parameters[..., 0] / parameters.sum(-1)

    def variance(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        total = parameters.sum(-1)
        return parameters.prod(-1) / (total.square() * (total + 1))

    def mode(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        alpha, beta = parameters.unbind(-1)
        inner = _inwards((alpha - 1) / (alpha + beta - 2).clamp(min=torch.finfo(alpha.dtype).tiny))
        # Without a mode inside, the heavier end; the uniform density has its middle.
        end = torch.where(alpha < beta, _NEAR_END, torch.full_like(alpha, 1 - _NEAR_END))
        end = torch.where((alpha == 1) & (beta == 1), 0.5, end)
        return torch.where((alpha > 1) & (beta > 1), inner, end)

    def log_prob_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        alpha, beta = parameters.unbind(-1)
        return log_mass_of_beta(alpha, beta, lower, upper).to(kind)

    def moments_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> tuple[Float[Tensor, "*batch4"], Float[Tensor, "*batch4"]]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        alpha, beta = parameters.unbind(-1)
        cells, place, size = truncated_beta(alpha, beta, lower, upper)
        away, variance = (each.view(size) for each in cells.moments(_away))
        return (place + away).to(kind), variance.to(kind)

    def sample_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        alpha, beta = parameters.unbind(-1)
        cells, place, size = truncated_beta(alpha, beta, lower, upper)
        away = _away(cells.draw(generator), *cells.numbers).view(size)
        return _inwards(clipped(place + away, lower, upper, kind))

    def mode_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        mode = clipped(self.mode(parameters), lower, upper, kind)
        # Where the density is highest at an end of the support, one end of the interval is best.
        ends = [torch.minimum(lower.clamp(min=_NEAR_END), upper)]
        ends.append(torch.maximum(upper.clamp(max=1 - _NEAR_END), lower))
        inside = (lower <= upper) & (upper > 0) & (lower < 1)
        for end in ends:
            end = clipped(_inwards(end.expand(mode.shape)), lower, upper, kind)
            better = self.log_prob(end, parameters) > self.log_prob(mode, parameters)
            mode = torch.where(better, end, mode)
        return torch.where(inside, _inwards(mode), math.nan)

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        drawn = torch.rand((*shape, 2), generator=generator, dtype=torch.float64)
        return self.phi(1 + 2 * drawn)


def _away(s: Tensor, alpha: Tensor, beta: Tensor, x: Tensor, rest: Tensor) -> Tensor:
    """How far x moves where its logit moves by s; ``rest`` is 1 − x."""
    decay = torch.exp(-s.abs())
    below = torch.where(s < 0, rest + x * decay, x + rest * decay)
    return s.sign() * x * rest * -torch.expm1(-s.abs()) / below


def _inwards(x: Tensor) -> Tensor:
    """``x`` moved to the nearest number strictly between 0 and 1."""
    kind = torch.finfo(x.dtype)
    return x.clamp(kind.tiny, 1 - kind.eps / 2)


def _solve_concentrations(
    phi: Float[Tensor, "*batch 2"], low: Tensor, high: Tensor
) -> Float[Tensor, "*batch 2"]:
    r"""The (α, β) in [low, high] that maximise φ·θ − A(θ), by a projected Newton's method.

    Two starts cover the plane: :math:`\alpha \approx \frac12 + \frac{e^{\varphi_1}}{2g}` with the
    gap :math:`g = 1 - e^{\varphi_1} - e^{\varphi_2}` where the density is concentrated, and
    :math:`\frac1\alpha \approx |\varphi_1| + \sqrt{\varphi_1 \varphi_2}` where it is U-shaped. Ten
    multiplicative steps then reach the rounding error.
    """
    phi = phi.clamp(max=-torch.finfo(phi.dtype).tiny)
    geometric = phi.exp()
    # The larger of the two is the one that is close to 1. Constant data leave no gap at all.
    gap = -torch.expm1(phi.amax(-1, keepdim=True)) - geometric.amin(-1, keepdim=True)
    concentrated = 0.5 + 0.5 * geometric / gap.clamp(min=1e-13)
    spread = 1 / (phi.prod(-1, keepdim=True).sqrt() - phi)
    value = _rescaled(torch.where(concentrated < 0.75, spread, concentrated), low, high)
    for _ in range(_STEPS):
        total = value.sum(-1, keepdim=True)
        gradient = phi - torch.digamma(value) + torch.digamma(total)
        curvature = torch.polygamma(1, value)
        shared = torch.polygamma(1, total)
        # Who stands at a bound and is pulled across it stays there, and the other steps alone; so
        # again where it is not the pull but only their common step that would cross.
        free = _stays(value, gradient, low, high)
        for _ in range(2):
            inverse = free / curvature
            # The Hessian is shared − diag(curvature), which Sherman and Morrison invert.
            rest = (1 - shared * inverse.sum(-1, keepdim=True)).clamp(min=1e-12)
            step = inverse * (gradient + shared * (inverse * gradient).sum(-1, keepdim=True) / rest)
            free = free * _stays(value, step, low, high)
        ratio = free * (step / value).clamp(-2, 2)
        # As far as the nearest bound, in the same direction: the valley may be narrow.
        reach = torch.where(ratio > 0, high, low).div(value).log().div(ratio)
        reach = torch.where(ratio == 0, 1.0, reach).amin(-1, keepdim=True).clamp(max=1)
        value = (value * (reach * ratio).exp()).clamp(low, high)
    return value


def _stays(value: Tensor, direction: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """1 where a small step in this direction stays within the bounds, else 0."""
    return torch.where(direction > 0, value < high, value > low).to(value)


def _rescaled(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """``value`` within bounds, with its mean kept as long as the lower bound allows."""
    largest = value.amax(-1, keepdim=True)
    return (value * (high / largest.clamp(min=high))).clamp(low, high)
