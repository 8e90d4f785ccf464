"""Families of counts 0, 1, …: what they answer between two bounds, once for all of them."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float, Real
from torch import Tensor

from einet.families.arithmetic import clipped
from einet.families.base import ExponentialFamily, as_bounds
from einet.families.counting import TruncatedCounts, whole_bounds

__all__ = ["CountFamily"]


class CountFamily(ExponentialFamily):
    """A family over 0, …, ``most`` with one stored parameter, rising to its mode and falling after.

    It says how its counts go on from one to the next (:meth:`counts`); what lies between bounds
    follows from that.
    """

    @property
    @abstractmethod
    def most(self) -> Tensor | float:
        """The largest count; infinite where there is none.

        Example:
            >>> import einet
            >>> einet.Binomial(10).most, einet.Poisson().most
            (tensor(10., dtype=torch.float64), inf)
        """

    @abstractmethod
    def counts(self, first: Tensor, last: Tensor, parameter: Tensor) -> TruncatedCounts:
        """The counts from ``first`` to ``last``.

        Args:
            first, last: Whole numbers, from 0 to :attr:`most`.
            parameter: The stored parameter.

        Example:
            >>> import einet
            >>> first, last, mean = (torch.tensor([float(number)]).double() for number in (0, 1, 2))
            >>> einet.Poisson().counts(first, last, mean).log_mass().exp()  # 3 exp(−2)
            tensor([0.4060], dtype=torch.float64)
        """

    def log_prob_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        first, last = whole_bounds(lower, upper, self.most)
        return self.counts(first, last, parameters[..., 0]).log_mass().to(kind)

    def moments_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> tuple[Float[Tensor, "*batch4"], Float[Tensor, "*batch4"]]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        first, last = whole_bounds(lower, upper, self.most)
        mean, variance = self.counts(first, last, parameters[..., 0]).moments()
        return mean.to(kind), variance.to(kind)

    def sample_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        first, last = whole_bounds(lower, upper.clamp(max=self.largest), self.most)
        drawn = self.counts(first, last, parameters[..., 0]).draw(generator)
        return clipped(drawn, first, last, kind)

    def mode_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        lower, upper, parameters, kind = as_bounds(lower, upper, parameters)
        first, last = whole_bounds(lower, upper.clamp(max=self.largest), self.most)
        return clipped(self.mode(parameters), first, last, kind)
