"""Bernoulli leaves, kept as the probability of a one."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Real
from torch import Tensor

from einet.families.arithmetic import (
    below_one,
    from_interval,
    logit,
    probability_bounds,
    softplus,
    to_interval,
)
from einet.families.base import ExponentialFamily, as_bounds
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

    def log_prob_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        return self._shares(lower, upper, parameters).sum(-1).log().to(kind)

    def _shares(
        self, lower: Tensor, upper: Tensor, parameters: Tensor
    ) -> Float[Tensor, "*batch 2"]:
        """P(x = 0) and P(x = 1) where these lie between the bounds, else 0."""
        p = parameters[..., 0]
        inside = [((lower <= state) & (state <= upper)).to(p) for state in (0, 1)]
        return torch.stack([inside[0] * (1 - p), inside[1] * p], -1)

    def moments_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> tuple[Float[Tensor, "*batch4"], Float[Tensor, "*batch4"]]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        shares = self._shares(lower, upper, parameters)
        zero, one = (shares / shares.sum(-1, keepdim=True)).unbind(-1)
        return one.to(kind), (zero * one).to(kind)

    def sample_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        one = self.moments_between(lower, upper, parameters)[0]
        drawn = torch.bernoulli(one.nan_to_num(0.0), generator=generator)
        return torch.where(one.isnan(), math.nan, drawn).to(kind)

    def mode_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        shares = self._shares(lower, upper, parameters)
        mode = (shares[..., 1] > shares[..., 0]).to(shares)
        return torch.where(shares.sum(-1) > 0, mode, math.nan).to(kind)

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        return 0.2 + 0.6 * torch.rand((*shape, 1), generator=generator, dtype=torch.float64)
