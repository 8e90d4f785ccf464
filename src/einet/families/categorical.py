"""Categorical leaves, kept as tables of probabilities."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from einet._checks import as_int, check_flag
from einet.families.arithmetic import is_whole
from einet.families.base import ExponentialFamily, as_bounds
from einet.families.hyper import Numbers, as_hyper, check_lengths
from einet.families.registry import register
from einet.families.simplex import floored_simplex

__all__ = ["Categorical"]


@register
class Categorical(ExponentialFamily):
    r"""Categorical :math:`p(x) = p_x` over {0, …, C − 1}.

    T(x) is the one-hot vector of x, θ = log p, and A(θ) = log Σ exp θ, which is 0 as long as p is
    normalised. What is stored is φ = p. Variables with fewer categories than the largest have
    tables that are padded with zeros.

    Args:
        num_categories: C.
        min_probability: Lower bound of every entry of p; at most 1/C.
        numeric: Whether categories are numbers, such as grey values, so that means and variances
            of them say something. They are NaN otherwise.

    Example:
        >>> family = Categorical([2, 3])  # two variables
        >>> parameters = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]])
        >>> family.log_prob(torch.tensor([0.0, 2.0]), parameters).exp()
        tensor([0.9000, 0.5000])
        >>> family.log_prob(torch.tensor([2.0, 3.0]), parameters)
        tensor([-inf, -inf])
    """

    hyperparameters: ClassVar = ("num_categories", "min_probability")
    kernel: ClassVar = "table"
    discrete: ClassVar = True
    support: ClassVar = "integers from 0 to num_categories - 1"
    bounded: ClassVar = True
    limits: ClassVar = {
        "num_categories": {"at_least": 1, "below": 2**31, "integer": True},
        "min_probability": {"above": 0},
    }
    #: Files of earlier releases do not say.
    numeric: bool = False

    def __init__(
        self,
        num_categories: Numbers,
        min_probability: Numbers = 1e-6,
        numeric: bool = False,
    ) -> None:
        limits = self.limits
        self.num_categories = as_hyper("num_categories", num_categories, **limits["num_categories"])
        self.min_probability = as_hyper(
            "min_probability", min_probability, **limits["min_probability"]
        )
        check_lengths(num_categories=self.num_categories, min_probability=self.min_probability)
        if bool((self.min_probability * self.num_categories > 1).any()):
            raise ValueError(
                "min_probability must be at most 1/num_categories, got "
                f"{min_probability} for {num_categories} categories"
            )
        # The tables' width. It outlives the variable that needs it when variables are selected.
        self.width = int(self.num_categories.max())
        check_flag("numeric", numeric)
        self.numeric = numeric

    def check_hyperparameters(self) -> None:
        super().check_hyperparameters()
        # Rounded to float32, 1/C may be a little more than that.
        if bool((self.min_probability * self.num_categories > 1 + 1e-5).any()):
            raise ValueError("min_probability must be at most 1/num_categories")
        as_int("width", self.width, minimum=int(self.num_categories.max()))

    @property
    def num_statistics(self) -> int:
        return self.width

    @property
    def num_states(self) -> int:
        return self.width

    def config(self) -> dict[str, Any]:
        return {"width": self.width, **({"numeric": True} if self.numeric else {})}

    def _valid(self, device: torch.device) -> Bool[Tensor, "*hyper S"]:
        states = torch.arange(self.width, device=device)
        return states < self.num_categories.to(device).unsqueeze(-1)

    def _floors(self, like: Tensor) -> tuple[Bool[Tensor, "*hyper S"], Float[Tensor, "*hyper S"]]:
        valid = self._valid(like.device)
        return valid, torch.where(valid, self.min_probability.to(like).unsqueeze(-1), 0.0)

    def T(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch S"]:
        state = x.clamp(0, self.width - 1).long()
        return torch.nn.functional.one_hot(state, self.width).to(x.dtype)

    def log_h(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        inside = is_whole(x) & (x >= 0) & (x < self.num_categories.to(x))
        return torch.where(inside, 0.0, -math.inf).to(x)

    def A(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch"]:
        return torch.where(self._valid(theta.device), theta, -math.inf).logsumexp(-1)

    def theta(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        # Finite where p is 0, as in the padding: θ is multiplied with the zeros of one-hot vectors.
        return phi.clamp(min=torch.finfo(phi.dtype).tiny).log()

    def phi(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        return torch.where(self._valid(theta.device), theta, -math.inf).softmax(-1)

    def project(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        valid, floors = self._floors(parameters)
        totals = torch.where(valid, parameters.clamp(min=0), 0.0)
        # On a GPU a number of rounds that no floor has needed yet, rather than wait for an answer.
        return floored_simplex(totals, floors, rounds=16 if totals.is_cuda else None)

    def constrain(self, raw: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        _, floors = self._floors(raw)
        return floors + (1 - floors.sum(-1, keepdim=True)).clamp(min=0) * self.phi(raw)

    def unconstrain(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        valid, floors = self._floors(parameters)
        excess = (parameters - floors).clamp(min=torch.finfo(parameters.dtype).tiny)
        return torch.where(valid, excess.log(), 0.0)

    def sample(
        self, parameters: Float[Tensor, "*batch P"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch"]:
        cumulative = parameters.cumsum(-1)
        total = cumulative[..., -1:]
        uniform = torch.rand(
            total.shape, generator=generator, dtype=total.dtype, device=total.device
        )
        # A category of probability 0 adds nothing to the sum, so that it is passed over.
        state = (cumulative <= uniform * total).sum(-1).to(parameters)
        return torch.minimum(state, self.num_categories.to(state) - 1)

    def mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        if not self.numeric:
            return torch.full_like(parameters[..., 0], math.nan)
        states = torch.arange(self.width, dtype=parameters.dtype, device=parameters.device)
        return parameters @ states

    def variance(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        if not self.numeric:
            return torch.full_like(parameters[..., 0], math.nan)
        states = torch.arange(self.width, dtype=parameters.dtype, device=parameters.device)
        # About the mean, as E[x²] − E[x]² would lose digits.
        away = states - self.mean(parameters).unsqueeze(-1)
        return (parameters * away * away).sum(-1)

    def mode(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        return parameters.argmax(-1).to(parameters)

    def log_prob_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        whole = torch.where(self._valid(parameters.device), parameters, 0.0).sum(-1)
        return (self._shares(lower, upper, parameters).sum(-1) / whole).log().to(kind)

    def _shares(
        self, lower: Tensor, upper: Tensor, parameters: Tensor
    ) -> Float[Tensor, "*batch S"]:
        """The probabilities of the states between the bounds, and 0 of all others."""
        states = torch.arange(self.width, device=parameters.device)
        inside = (lower.unsqueeze(-1) <= states) & (states <= upper.unsqueeze(-1))
        return torch.where(inside & self._valid(parameters.device), parameters, 0.0)

    def moments_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> tuple[Float[Tensor, "*batch4"], Float[Tensor, "*batch4"]]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        shares = self._shares(lower, upper, parameters)
        shares = shares / shares.sum(-1, keepdim=True)
        return self.mean(shares).to(kind), self.variance(shares).to(kind)

    def sample_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        shares = self._shares(lower, upper, parameters)
        drawn = self.sample(shares, generator)
        return torch.where(shares.sum(-1) > 0, drawn, math.nan).to(kind)

    def mode_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        shares = self._shares(lower, upper, parameters)
        return torch.where(shares.sum(-1) > 0, self.mode(shares), math.nan).to(kind)

    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        drawn = torch.rand((*shape, self.width), generator=generator, dtype=torch.float64) + 0.1
        weights = drawn * self._valid(drawn.device)
        return weights / weights.sum(-1, keepdim=True)
