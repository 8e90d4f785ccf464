r"""Sums of powers of x counted from anywhere: what keeps the digits of data far from 0.

E[x²] − E[x]² has no correct digit left where the mean is 1e8 times the deviation. So statistics
Σp, Σp(x − o) and Σp(x − o)² of a density are counted from an origin o close to it: its own mean.
Parameters are (μ, σ²), as :class:`~einet.Gaussian` stores them, in the same units.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["LARGEST", "ROUNDING", "counted_from", "moved", "seen_from", "variance_of"]

#: Means are finite in float32 too, whatever outlier they were computed from.
LARGEST = 1e30

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


def moved(
    parameters: Float[Tensor, "*batch P"],
    total: Float[Tensor, "*batch"],
    sums: Float[Tensor, "*batch S"],
    origin: Float[Tensor, "*batch"],
    step_size: float | Tensor,
) -> Float[Tensor, "*batch P"]:
    """Parameters after a step of EM towards sums counted from an origin, before any bounds.

    The mean is rounded to the type of the parameters, and the variance is the best one for the
    mean that is kept: the nearest mean that there is, is the best one for any variance. So rounding
    costs no more than it must, and EM with rounded parameters does not fall.

    Args:
        parameters: (μ, σ²) before, as they are kept.
        total, sums: Σp, and Σp(x − o) and Σp(x − o)². Where Σp is 0, the result means nothing.
        origin: o.
        step_size: How far to go; 1 is all the way.

    Example:
        >>> half = torch.tensor(4.0, dtype=torch.float64), torch.tensor([8.0, 20.0]).double()
        >>> moved(torch.tensor([1.0, 2.0]), *half, torch.tensor(1.0).double(), 0.5)
        tensor([2.0000, 2.5000], dtype=torch.float64)
    """
    mean, variance = parameters.double().unbind(-1)
    # Seen from the origin, from where nothing cancels.
    away = mean - origin
    first, second = (each / total for each in sums.unbind(-1))
    first = torch.lerp(away, first, step_size)
    second = torch.lerp(variance.addcmul(away, away), second, step_size)
    kept = (first + origin).clamp_(-LARGEST, LARGEST).to(parameters.dtype).double()
    off = first - (kept - origin)
    variance = torch.maximum(second.addcmul(first, first, value=-1), ROUNDING * second)
    return torch.stack([kept, variance.addcmul_(off, off)], -1)
