r"""Log probabilities of large counts without large terms that cancel.

:math:`x \log\mu - \mu - \log x!` is a small difference of numbers of size x log x. Its saddle-point
form (C. Loader, *Fast and accurate computation of binomial probabilities*, 2000) has none of them:
:math:`-D(x, \mu) - \delta(x) - \tfrac12\log 2\pi x` with the deviance D, which is small where x is
near μ, and the error δ of Stirling's formula.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["deviance", "stirling_error"]

# Where (x − μ) / (x + μ) is below this, so many terms of the series reach the rounding error.
_NEAR, _TERMS = 0.1, 8
# From here on five terms of the asymptotic series do.
_LARGE = 15.0
_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)


def deviance(
    x: Float[Tensor, "*batch"],
    mean: Float[Tensor, "*batch2"],
    log_ratio: Float[Tensor, "*batch3"] | None = None,
) -> Float[Tensor, "*batch4"]:
    r""":math:`D(x, \mu) = x \log(x / \mu) + \mu - x`, with all its digits; broadcasts.

    Args:
        x: Numbers above 0.
        mean: μ, above 0.
        log_ratio: log(x / μ), where the quotient could leave the range of its type.

    Example:
        >>> x = torch.tensor([1.0, 1e9, 1e9], dtype=torch.float64)
        >>> mean = torch.tensor([2.0, 1e9, 1e9 + 1.0], dtype=torch.float64)
        >>> deviance(x, mean)
        tensor([3.0685e-01, 0.0000e+00, 5.0000e-10], dtype=torch.float64)
    """
    difference = x - mean
    v = difference / (x + mean)
    square = v * v
    series = torch.zeros_like(v)
    for term in range(_TERMS, 0, -1):
        series = (series + 1 / (2 * term + 1)) * square
    near = difference * v + 2 * x * v * series
    ratio = (x / mean).log() if log_ratio is None else log_ratio
    return torch.where(v.abs() < _NEAR, near, x * ratio - difference)


def stirling_error(x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    r""":math:`\delta(x) = \log\Gamma(x + 1) - (x + \tfrac12)\log x + x - \tfrac12\log 2\pi`, x > 0.

    Example:
        >>> stirling_error(torch.tensor([1.0, 1e3], dtype=torch.float64))
        tensor([8.1061e-02, 8.3333e-05], dtype=torch.float64)
    """
    inverse = 1 / x.clamp(min=_LARGE)
    square, series = inverse * inverse, torch.zeros_like(x)
    for factor in reversed(_SERIES):
        series = series * square + factor
    small = x.clamp(max=_LARGE)
    exact = torch.lgamma(small + 1) - (small + 0.5) * small.log() + small
    return torch.where(x < _LARGE, exact - 0.5 * math.log(2 * math.pi), series * inverse)
