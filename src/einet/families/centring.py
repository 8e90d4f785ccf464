r"""Sums of powers of x counted from anywhere: what keeps the digits of data far from 0.

E[x²] − E[x]² has no correct digit left where the mean is 1e8 times the deviation. So statistics
Σp, Σp(x − o) and Σp(x − o)² of a density are counted from an origin o close to it: its own mean.
Parameters are (μ, σ²), as :class:`~einet.Gaussian` stores them, in the same units.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["ROUNDING", "counted_from", "refitted", "seen_from", "variance_of"]

#: A variance is not told from 0 below this share of E[(x − o)²], which is what rounding leaves of
#: sums over many rows in float64.
ROUNDING = 1e-14


def seen_from(
    parameters: Float[Tensor, "*batch P"], origin: Float[Tensor, "*batch2"]
) -> Float[Tensor, "*batch3 P"]:
    """Parameters (μ, σ²) of x as those of x − o.

    Example:
        >>> seen_from(torch.tensor([5.0, 2.0]), torch.tensor(4.0))
        tensor([1., 2.])
    """
    mean, variance = parameters.unbind(-1)
    mean = mean - origin
    return torch.stack([mean, variance.expand_as(mean)], -1)


def counted_from(
    total: Float[Tensor, "*batch"], sums: Float[Tensor, "*batch2 S"], origin: Float[Tensor, "..."]
) -> Float[Tensor, "*batch3 S"]:
    """Σp(x − o) and Σp(x − o)², given Σp, and Σpx and Σpx².

    Example:
        >>> counted_from(torch.tensor(2.0), torch.tensor([10.0, 52.0]), torch.tensor(4.0))
        tensor([2., 4.])
    """
    first, second = sums.unbind(-1)
    moved = first - origin * total
    return torch.stack([moved, second - origin * (first + moved)], -1)


def variance_of(phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch"]:
    """σ² of φ = (E[x], E[x²]), never below what rounding may have taken from it.

    A variance that came out too small, or negative, would make a density of a row or two; one that
    is a little large is still better than the one before, from which the mean was as far away.

    Example:
        >>> variance_of(torch.tensor([[1.0, 3.0], [1e8, 1e16]], dtype=torch.float64))
        tensor([  2., 100.], dtype=torch.float64)
    """
    mean, second = phi.unbind(-1)
    return torch.maximum(second - mean * mean, ROUNDING * second)


def refitted(
    parameters: Float[Tensor, "*batch P"],
    phi: Float[Tensor, "*batch S"],
    origin: Float[Tensor, "*batch2"],
) -> Float[Tensor, "*batch P"]:
    """The best variance for a mean that has been rounded or bounded, given φ of x − o.

    The nearest mean that there is, is the best one for any variance; and this is the best variance
    for it. So rounding costs no more than it must, and EM with rounded parameters does not fall.

    Example:
        >>> phi = torch.tensor([0.4, 0.5], dtype=torch.float64)  # mean 4.4, variance 0.34
        >>> rounded = torch.tensor([4.0, 0.34], dtype=torch.float64)
        >>> refitted(rounded, phi, torch.tensor(4.0, dtype=torch.float64))
        tensor([4.0000, 0.5000], dtype=torch.float64)
    """
    mean = parameters[..., 0]
    moved = phi[..., 0] - (mean - origin)
    return torch.stack([mean, variance_of(phi) + moved * moved], -1)
