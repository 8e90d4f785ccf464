"""A family of one's own, in one file, as a program outside the library would write it."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

import einet
from einet.families.arithmetic import finite, from_interval, is_whole, to_interval
from einet.families.hyper import Numbers, as_hyper, check_lengths

__all__ = ["NegativeBinomial"]

# The largest mean, so that it is finite in float32 too, whatever outlier it was computed from.
_LARGEST = 1e30
# Rates that torch draws exactly on every device.
_LARGEST_DRAWN = 1e9


@einet.families.register
class NegativeBinomial(einet.ExponentialFamily):
    r"""Failures before the r-th success, :math:`p(x) = \binom{x+r-1}{x} (1-q)^r q^x`.

    T(x) = x, θ = log q, A(θ) = −r log(1 − exp θ). What is stored is φ = μ = r q / (1 − q).

    Args:
        r: The number of successes, which need not be whole; fixed for each variable.
        min_mean: Lower bound of μ.
    """

    hyperparameters: ClassVar = ("r", "min_mean")
    support: ClassVar = "integers from 0"
    discrete: ClassVar = True

    limits: ClassVar = {
        "r": {"above": 0, "below": math.inf},
        "min_mean": {"above": 0, "below": math.inf},
    }

    def __init__(self, r: Numbers, min_mean: Numbers = 1e-6) -> None:
        self.r = as_hyper("r", r, **self.limits["r"])
        self.min_mean = as_hyper("min_mean", min_mean, **self.limits["min_mean"])
        check_lengths(r=self.r, min_mean=self.min_mean)

    @property
    def num_statistics(self) -> int:
        return 1

    def T(self, x: Tensor) -> Tensor:
        return finite(x.clamp(min=0)).unsqueeze(-1)

    def log_h(self, x: Tensor) -> Tensor:
        r, count = self.r.to(x), finite(x.clamp(min=0))
        log_h = torch.lgamma(count + r) - torch.lgamma(r) - torch.lgamma(count + 1)
        return torch.where(is_whole(x) & (x >= 0), log_h, -math.inf)

    def A(self, theta: Tensor) -> Tensor:
        return -self.r.to(theta) * torch.log(-torch.expm1(theta[..., 0]))

    def theta(self, phi: Tensor) -> Tensor:
        r, mean = self.r.to(phi).unsqueeze(-1), phi.clamp(min=torch.finfo(phi.dtype).tiny)
        # log(μ / (μ + r)), on the side where it does not cancel.
        return torch.where(mean < r, mean.log() - (mean + r).log(), -torch.log1p(r / mean))

    def phi(self, theta: Tensor) -> Tensor:
        return self.r.to(theta).unsqueeze(-1) / torch.expm1(-theta)

    def project(self, parameters: Tensor) -> Tensor:
        return parameters.clamp(min=self.min_mean.to(parameters).unsqueeze(-1)).clamp(max=_LARGEST)

    def constrain(self, raw: Tensor) -> Tensor:
        low = self.min_mean.to(raw).unsqueeze(-1)
        return to_interval(raw, low, torch.full_like(low, math.inf))

    def unconstrain(self, parameters: Tensor) -> Tensor:
        low = self.min_mean.to(parameters).unsqueeze(-1)
        return from_interval(parameters, low, torch.full_like(low, math.inf))

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        mean = parameters[..., 0]
        r = self.r.to(mean).expand_as(mean)
        # A Poisson variable whose rate is drawn from a Gamma distribution.
        draw = torch._standard_gamma  # pyright: ignore[reportPrivateImportUsage]
        rate = draw(r.contiguous(), generator=generator) * mean / r
        return torch.poisson(rate.clamp(max=_LARGEST_DRAWN), generator=generator)

    def mean(self, parameters: Tensor) -> Tensor:
        return parameters[..., 0]

    def variance(self, parameters: Tensor) -> Tensor:
        mean = parameters[..., 0]
        return mean + mean * mean / self.r.to(mean)

    def mode(self, parameters: Tensor) -> Tensor:
        mean, r = parameters[..., 0], self.r.to(parameters)
        return ((r - 1) * mean / r).clamp(min=0).floor()

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Tensor:
        return 0.5 + torch.rand((*shape, 1), generator=generator, dtype=torch.float64)
