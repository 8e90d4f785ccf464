"""Binomial leaves, kept as the probability of one success."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from einet.families.arithmetic import (
    below_one,
    from_interval,
    is_whole,
    logit,
    probability_bounds,
    representable,
    softplus,
    to_interval,
)
from einet.families.count_family import CountFamily
from einet.families.counting import TruncatedCounts
from einet.families.deviance import deviance, stirling_error
from einet.families.hyper import Numbers, as_hyper, check_lengths
from einet.families.log_concave import log_mass_of_beta
from einet.families.registry import register

__all__ = ["Binomial"]


@register
class Binomial(CountFamily):
    r"""Binomial :math:`p(x) = \binom{n}{x} p^x (1-p)^{n-x}` over {0, …, n}.

    T(x) = x, θ = log(p / (1 − p)), A(θ) = n log(1 + exp θ), φ = n p. What is stored is p, whose
    digits do not depend on n. With n = 255 it is a distribution over the grey values of a pixel.

    Samples in float32 that are above 2²⁴ are rounded to the whole numbers that there are in that
    type.

    Args:
        n: The number of trials; at most 2³², as binomial coefficients are differences of numbers of
            size n log n, which would leave too few digits for more of them.
        min_probability: p is kept within [min_probability, 1 − min_probability].

    Example:
        >>> family = Binomial([2, 4])  # two variables
        >>> parameters = torch.tensor([[0.5], [0.5]])
        >>> family.log_prob(torch.tensor([1.0, 1.0]), parameters).exp()
        tensor([0.5000, 0.2500])
    """

    hyperparameters: ClassVar = ("n", "min_probability")
    discrete: ClassVar = True
    largest: ClassVar = 2.0**32
    support: ClassVar = "integers from 0 to n"
    limits: ClassVar = {
        "n": {"at_least": 1, "at_most": 2.0**32, "integer": True},
        "min_probability": {"above": 0, "below": 0.5},
    }

    def __init__(
        self,
        n: Numbers,
        min_probability: Numbers = 1e-6,
    ) -> None:
        limits = self.limits
        self.n = as_hyper("n", n, **limits["n"])
        self.min_probability = as_hyper(
            "min_probability", min_probability, **limits["min_probability"]
        )
        check_lengths(n=self.n, min_probability=self.min_probability)

    @property
    def num_statistics(self) -> int:
        return 1

    @property
    def num_states(self) -> int:
        return int(self.n.max()) + 1

    def _possible(self, x: Tensor) -> Tensor:
        return torch.minimum(x.clamp(min=0), self.n.to(x))

    def T(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch S"]:
        return self._possible(x).unsqueeze(-1)

    def log_h(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        n, k = self.n.to(x), self._possible(x)
        ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
        return torch.where(is_whole(x) & (x == k), ways, -math.inf)

    def log_density(
        self, x: Float[Tensor, "*batch"], parameters: Float[Tensor, "*batch2 P"]
    ) -> Float[Tensor, "*batch3"]:
        p, n, k = parameters[..., 0], self.n.to(x), self._possible(x)
        # Inside, where both outcomes occur; the filling elsewhere is not looked at.
        both = (k > 0) & (k < n)
        ones, zeros = torch.where(both, k, 1.0), torch.where(both, n - k, 1.0)
        errors = stirling_error(n) - stirling_error(ones) - stirling_error(zeros)
        ways = 0.5 * (n / (2 * math.pi * ones)).log() - 0.5 * zeros.log() + errors
        inner = ways - deviance(ones, n * p) - deviance(zeros, n * (1 - p))
        ends = torch.where(k > 0, n * p.log(), n * torch.log1p(-p))
        return torch.where(both, inner, ends)

    def A(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch"]:
        return self.n.to(theta) * softplus(theta[..., 0])

    def theta(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return self.theta_of(self.store(phi))

    def phi(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return self.phi_of(theta.sigmoid())

    def store(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch P"]:
        return phi / self.n.to(phi).unsqueeze(-1)

    def phi_of(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch S"]:
        return parameters * self.n.to(parameters).unsqueeze(-1)

    def theta_of(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch S"]:
        return logit(parameters)

    def project(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        low, high = probability_bounds(self.min_probability, parameters)
        return parameters[..., 0].clamp(low, high).unsqueeze(-1)

    def rounded(
        self, parameters: Float[Tensor, "*batch P"], dtype: torch.dtype
    ) -> Float[Tensor, "*batch P"]:
        return below_one(parameters, dtype)

    def constrain(self, raw: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        low, high = probability_bounds(self.min_probability, raw)
        return to_interval(raw[..., 0], low, high).unsqueeze(-1)

    def unconstrain(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        low, high = probability_bounds(self.min_probability, parameters)
        return from_interval(parameters[..., 0], low, high).unsqueeze(-1)

    def sample(
        self, parameters: Float[Tensor, "*batch P"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch"]:
        # In float64: float32 has too few whole numbers to count with.
        p = parameters[..., 0].double()
        n = self.n.to(p).expand(p.shape)
        count = torch.binomial(n, p, generator=generator)
        return representable(count, n, parameters.dtype)

    def mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return self.n.to(parameters) * parameters[..., 0]

    def variance(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        p = parameters[..., 0]
        return self.n.to(p) * p * (1 - p)

    def mode(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        p = parameters[..., 0]
        return self._possible(((self.n.to(p) + 1) * p).floor())

    @property
    def most(self) -> Tensor | float:
        return self.n

    def counts(self, first: Tensor, last: Tensor, parameter: Tensor) -> TruncatedCounts:
        n = self.n.to(parameter)
        first, last, p, n = torch.broadcast_tensors(first, last, parameter, n)

        def log_prob(x: Tensor, p: Tensor, n: Tensor) -> Tensor:
            flat = self.with_hyperparameters({"n": n})
            return flat.log_density(x, p.unsqueeze(-1))

        def tail(start: Tensor, p: Tensor, n: Tensor, upwards: bool) -> Tensor:
            # Of n uniform numbers the one in that place is below p.
            place = (start if upwards else start + 1).clamp(min=1.0)
            place = torch.minimum(place, n)
            bounds = (torch.zeros_like(p), p) if upwards else (p, torch.ones_like(p))
            log = log_mass_of_beta(place, n - place + 1, *bounds)
            certain = start <= 0 if upwards else start >= n
            never = start > n if upwards else start < 0
            return torch.where(certain, 0.0, torch.where(never, -math.inf, log))

        return TruncatedCounts(
            first, last, (p, n),
            mode=lambda p, n: torch.minimum(((n + 1) * p).floor(), n),
            log_prob=log_prob,
            above=lambda x, p, n: (n - x) / (x + 1) * (p / (1 - p)),
            below=lambda x, p, n: x / (n - x + 1) * ((1 - p) / p),
            log_tail=tail,
            flux=lambda x, p, n: (n - x) * p,
            moments_of_all=lambda p, n: (n * p, n * p * (1 - p), p),
        )  # fmt: skip

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        p = 0.2 + 0.6 * torch.rand(shape, generator=generator, dtype=torch.float64)
        return (self.n.to(p) * p).unsqueeze(-1)
