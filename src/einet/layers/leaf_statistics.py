"""Expected statistics of leaves, and what an M-step makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from einet.families import ExponentialFamily
from einet.families.centring import counted_from, moved, seen_from

__all__ = ["LeafStatistics", "next_parameters"]

# Sums of a few products are right to so many units in the last place.
_ULPS = 16


@dataclass
class LeafStatistics:
    """Expected statistics of one block: Σ p_L and Σ p_L T(x) for each (entry, pair), float64.

    Those of Gaussians are counted from an origin, the mean that a density had when its first row
    was added: ``sums`` are Σ p_L T(x − o) then. Without one they are Σ p_L T(x).
    """

    total: Float[Tensor, "K pairs"]
    sums: Float[Tensor, "K pairs S"]
    origin: Float[Tensor, "K pairs"] | None = None
    #: Whether nothing was added since the origin could last be moved.
    empty: bool = True

    @property
    def weighted(self) -> Float[Tensor, "K pairs S"]:
        """Σ p_L T(x), wherever the sums are counted from."""
        if self.origin is None:
            return self.sums
        return counted_from(self.total, self.sums, -self.origin)

    def from_origin(self, origin: Tensor | None) -> Float[Tensor, "K pairs S"]:
        """The sums as counted from another origin."""
        if self.origin is None:
            return self.sums if origin is None else counted_from(self.total, self.sums, origin)
        by = -self.origin if origin is None else origin - self.origin
        return counted_from(self.total, self.sums, by)

    def move_(self, origin: Float[Tensor, "K pairs"]) -> None:
        """Count from another origin, in place."""
        assert self.origin is not None
        self.sums.copy_(self.from_origin(origin))
        self.origin.copy_(origin)


def next_parameters(
    family: ExponentialFamily,
    old: Float[Tensor, "K pairs P"],
    statistic: LeafStatistics,
    step_size: float | Tensor,
) -> Float[Tensor, "K pairs P"]:
    """The M-step: stored parameters, of the type of the old ones, after a step towards φ = ΣpT/Σp.

    A density that no row has reached keeps what it had. So does one that a whole step would make
    worse: the best parameters may not be among those that its type can hold, or a family may not
    find them, and EM never falls.

    Args:
        family: The family, with hyper-parameters of each pair.
        old: The parameters before.
        statistic: What the rows, and perhaps a prior, say.
        step_size: How far to go; 1 is all the way.
    """
    total, origin = statistic.total.unsqueeze(-1), statistic.origin
    keep = total > 0
    if origin is None:
        phi = family.phi_of(old.double())
        phi = torch.where(keep, torch.lerp(phi, statistic.sums / total, step_size), phi)
        new = family.project(family.store(phi))
    else:
        new = family.project(moved(old, statistic.total, statistic.sums, origin, step_size))
    new = family.rounded(new, old.dtype)
    if not isinstance(step_size, Tensor) and step_size == 1:
        before, after = (_seen(each.double(), origin) for each in (old, new))
        keep = keep & ~_falls(family, before, after, statistic)
    # On a GPU it is cheaper to choose everywhere than to wait for an answer.
    if not keep.is_cuda and bool(keep.all()):
        return new
    return torch.where(keep, new, old)


def _seen(parameters: Tensor, origin: Tensor | None) -> Tensor:
    return parameters if origin is None else seen_from(parameters, origin)


def _falls(
    family: ExponentialFamily, before: Tensor, after: Tensor, statistic: LeafStatistics
) -> Tensor:
    """Where θ·ΣpT − A Σp is lower after than before, by more than its rounding error."""
    first, second = (_objective(family, parameters, statistic) for parameters in (before, after))
    lower = ~(second >= first) & first.isfinite()
    # Mostly there is none, and then nobody need know how exact that is.
    if not lower.is_cuda and not bool(lower.any()):
        return lower.unsqueeze(-1)
    error = sum(
        _objective(family, parameters, statistic, of_terms=True) for parameters in (before, after)
    )
    rounding = _ULPS * torch.finfo(torch.float64).eps * error
    return (lower & ~(second >= first - rounding)).unsqueeze(-1)


def _objective(
    family: ExponentialFamily, parameters: Tensor, statistic: LeafStatistics, of_terms: bool = False
) -> Tensor:
    """θ·ΣpT − A Σp, or what the absolute values of its terms add up to."""
    theta = family.theta_of(parameters)
    products, offset = theta * statistic.sums, family.A(theta) * statistic.total
    if of_terms:
        return products.abs().sum(-1) + offset.abs()
    return products.sum(-1) - offset
