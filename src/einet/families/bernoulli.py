"""Bernoulli leaves, kept as the probability of a one."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from einet.families.arithmetic import (
    below_one,
    from_interval,
    logit,
    probability_bounds,
    softplus,
    to_interval,
)
from einet.families.base import ExponentialFamily
from einet.families.hyper import Numbers, as_hyper
from einet.families.registry import register

__all__ = ["Bernoulli"]


@register
class Bernoulli(ExponentialFamily):
    r"""Bernoulli :math:`p(x) = p^x (1-p)^{1-x}` over {0, 1}.

    T(x) = x, θ = log(p / (1 − p)), A(θ) = log(1 + exp θ). What is stored is φ = p.

    Args:
        min_probability: p is kept within [min_probability, 1 − min_probability].

    Example:
        >>> family = Bernoulli()
        >>> parameters = torch.tensor([[0.2], [0.9]])  # two variables
        >>> family.log_prob(torch.tensor([0.0, 1.0]), parameters).exp()
        tensor([0.8000, 0.9000])
    """

    hyperparameters: ClassVar = ("min_probability",)
    kernel: ClassVar = "binary"
    discrete: ClassVar = True
    largest: ClassVar = 1.0
    support: ClassVar = "0 or 1"
    bounded: ClassVar = True
    limits: ClassVar = {"min_probability": {"above": 0, "below": 0.5}}

    def __init__(self, min_probability: Numbers = 1e-6) -> None:
        limits = self.limits["min_probability"]
        self.min_probability = as_hyper("min_probability", min_probability, **limits)

    @property
    def num_statistics(self) -> int:
        return 1

    @property
    def num_states(self) -> int:
        return 2

    def T(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch S"]:
        return x.clamp(0, 1).unsqueeze(-1)

    def log_h(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        return torch.where((x == 0) | (x == 1), 0.0, -math.inf).to(x)

    def A(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch"]:
        return softplus(theta[..., 0])

    def theta(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return logit(phi)

    def phi(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return theta.sigmoid()

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
        return torch.bernoulli(parameters[..., 0], generator=generator)

    def mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return parameters[..., 0]

    def variance(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        p = parameters[..., 0]
        return p * (1 - p)

    def mode(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return (parameters[..., 0] > 0.5).to(parameters)

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        return 0.2 + 0.6 * torch.rand((*shape, 1), generator=generator, dtype=torch.float64)
