"""Poisson leaves, kept as rates."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from einet.families.arithmetic import (
    finite,
    from_interval,
    is_whole,
    representable,
    to_interval,
)
from einet.families.count_family import CountFamily
from einet.families.counting import TruncatedCounts
from einet.families.deviance import deviance, stirling_error
from einet.families.hyper import Numbers, as_hyper
from einet.families.log_concave import log_mass_of_gamma
from einet.families.registry import register

__all__ = ["Poisson"]

# Rates that torch draws exactly on every device; a CUDA device counts in 32 bits.
_LARGEST_DRAWN = 1e9


@register
class Poisson(CountFamily):
    r"""Poisson :math:`p(x) = \lambda^x e^{-\lambda} / x!` over {0, 1, 2, …}.

    T(x) = x, θ = log λ, A(θ) = exp θ, h(x) = 1/x!. What is stored is φ = λ, which is at most 2³².

    The support ends at 2³²: x log λ and log x! are differences of numbers of size x log x, which
    for larger counts would leave too few digits to tell models apart. Samples in float32 that are
    above 2²⁴ are rounded to the whole numbers that there are in that type.

    Args:
        min_rate: Lower bound of λ.

    Example:
        >>> family = Poisson()
        >>> parameters = torch.tensor([[2.0]])
        >>> family.log_prob(torch.tensor([[0.0], [1.0], [2.0]]), parameters).exp().squeeze(-1)
        tensor([0.1353, 0.2707, 0.2707])
    """

    hyperparameters: ClassVar = ("min_rate",)
    discrete: ClassVar = True
    largest: ClassVar = 2.0**32
    support: ClassVar = "integers from 0 to 2**32"
    limits: ClassVar = {"min_rate": {"above": 0, "below": 2.0**32}}

    def __init__(self, min_rate: Numbers = 1e-6) -> None:
        self.min_rate = as_hyper("min_rate", min_rate, **self.limits["min_rate"])

    @property
    def num_statistics(self) -> int:
        return 1

    def T(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch S"]:
        return finite(x.clamp(min=0)).unsqueeze(-1)

    def log_h(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        inside = is_whole(x) & (x >= 0) & (x <= self.largest)
        return torch.where(inside, -torch.lgamma(x.clamp(0, self.largest) + 1), -math.inf)

    def log_density(
        self, x: Float[Tensor, "*batch"], parameters: Float[Tensor, "*batch2 P"]
    ) -> Float[Tensor, "*batch3"]:
        rate, count = parameters[..., 0], x.clamp(1, self.largest)
        large = deviance(count, rate) + stirling_error(count) + 0.5 * (2 * math.pi * count).log()
        return -torch.where(x > 0, large, rate)

    def A(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch"]:
        return theta[..., 0].exp()

    def theta(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return phi.clamp(min=torch.finfo(phi.dtype).tiny).log()

    def phi(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return theta.exp()

    def project(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        return parameters.clamp(min=self.min_rate.to(parameters).unsqueeze(-1)).clamp(
            max=self.largest
        )

    def constrain(self, raw: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        low = self.min_rate.to(raw).unsqueeze(-1)
        return to_interval(raw, low, torch.full_like(low, self.largest))

    def unconstrain(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        low = self.min_rate.to(parameters).unsqueeze(-1)
        return from_interval(parameters, low, torch.full_like(low, self.largest))

    def sample(
        self, parameters: Float[Tensor, "*batch P"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch"]:
        # In float64: float32 has too few whole numbers to count with.
        rate = parameters[..., 0].double()
        drawn = rate.clamp(max=_LARGEST_DRAWN)
        count = torch.poisson(drawn, generator=generator)
        # A larger rate borrows the noise of the largest, which is Gaussian by then.
        count = (rate + (count - drawn) * (rate / drawn).sqrt()).round()
        return representable(count, torch.full_like(count, self.largest), parameters.dtype)

    def mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return parameters[..., 0]

    def variance(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return parameters[..., 0]

    def mode(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return parameters[..., 0].floor()

    @property
    def most(self) -> Tensor | float:
        return math.inf

    def counts(self, first: Tensor, last: Tensor, parameter: Tensor) -> TruncatedCounts:
        first, last, rate = torch.broadcast_tensors(first, last, parameter)

        def tail(start: Tensor, rate: Tensor, upwards: bool) -> Tensor:
            # Of so many events the last comes before the time is over.
            shape = (start if upwards else start + 1).clamp(1.0, 1e300)
            bounds = (torch.zeros_like(rate), rate) if upwards else (rate, rate + torch.inf)
            log = log_mass_of_gamma(shape, shape, *bounds)
            certain = start <= 0 if upwards else start == math.inf
            never = start == math.inf if upwards else start < 0
            return torch.where(certain, 0.0, torch.where(never, -math.inf, log))

        return TruncatedCounts(
            first, last, (rate,),
            mode=lambda rate: rate.floor(),
            log_prob=lambda x, rate: self.log_density(x, rate.unsqueeze(-1)),
            above=lambda x, rate: rate / (x + 1),
            below=lambda x, rate: x / rate,
            log_tail=tail,
            flux=lambda x, rate: rate,
            moments_of_all=lambda rate: (rate, rate, torch.zeros_like(rate)),
        )  # fmt: skip

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        return 0.5 + torch.rand((*shape, 1), generator=generator, dtype=torch.float64)
