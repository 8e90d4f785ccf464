"""Binomial leaves, kept as the probability of one success."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from einet.families.arithmetic import (
    from_interval,
    is_whole,
    logit,
    probability_bounds,
    softplus,
    to_interval,
)
from einet.families.base import ExponentialFamily
from einet.families.hyper import Numbers, as_hyper, check_lengths
from einet.families.registry import register

__all__ = ["Binomial"]

# The logs of binomial coefficients are differences: of more trials they lose all their digits.
_MOST_TRIALS = 1 << 31


@register
class Binomial(ExponentialFamily):
    r"""Binomial :math:`p(x) = \binom{n}{x} p^x (1-p)^{n-x}` over {0, …, n}.

    T(x) = x, θ = log(p / (1 − p)), A(θ) = n log(1 + exp θ), φ = n p. What is stored is p, whose
    digits do not depend on n. With n = 255 it is a distribution over the grey values of a pixel.

    Args:
        n: The number of trials, below 2³¹.
        min_probability: p is kept within [min_probability, 1 − min_probability].

    Example:
        >>> family = Binomial([2, 4])  # two variables
        >>> parameters = torch.tensor([[0.5], [0.5]])
        >>> family.log_prob(torch.tensor([1.0, 1.0]), parameters).exp()
        tensor([0.5000, 0.2500])
    """

    hyperparameters: ClassVar = ("n", "min_probability")
    discrete: ClassVar = True
    support: ClassVar = "integers from 0 to n"

    def __init__(
        self,
        n: Numbers,
        min_probability: Numbers = 1e-6,
    ) -> None:
        self.n = as_hyper("n", n, at_least=1, below=_MOST_TRIALS, integer=True)
        self.min_probability = as_hyper("min_probability", min_probability, above=0, below=0.5)
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

    def constrain(self, raw: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        low, high = probability_bounds(self.min_probability, raw)
        return to_interval(raw[..., 0], low, high).unsqueeze(-1)

    def unconstrain(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        low, high = probability_bounds(self.min_probability, parameters)
        return from_interval(parameters[..., 0], low, high).unsqueeze(-1)

    def sample(
        self, parameters: Float[Tensor, "*batch P"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch"]:
        p = parameters[..., 0]
        return torch.binomial(self.n.to(p).expand(p.shape), p, generator=generator)

    def mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return self.n.to(parameters) * parameters[..., 0]

    def variance(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        p = parameters[..., 0]
        return self.n.to(p) * p * (1 - p)

    def mode(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        p = parameters[..., 0]
        return self._possible(((self.n.to(p) + 1) * p).floor())

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        p = 0.2 + 0.6 * torch.rand(shape, generator=generator, dtype=torch.float64)
        return (self.n.to(p) * p).unsqueeze(-1)
