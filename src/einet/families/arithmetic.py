"""Small pieces of arithmetic that several families share."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = [
    "below_one",
    "clipped",
    "finite",
    "from_interval",
    "is_whole",
    "log_standard_gamma",
    "logit",
    "probability_bounds",
    "representable",
    "softplus",
    "to_interval",
    "within",
]

# Unconstrained parameters are used within ±40: exp(−40) is nothing beside any sensible bound, and
# its reciprocal can be squared, as the chain rule does, without an overflow in float32.
_WIDEST = 40.0


def finite(x: Float[Tensor, "*batch"], power: int = 2) -> Float[Tensor, "*batch"]:
    """``x`` without infinities and other values whose square, or other power, would be one.

    Where this changes anything the log density is hopelessly low, or −∞ through ``log_h``.
    """
    farthest = 0.1 * torch.finfo(x.dtype).max ** (1 / power)
    return x.clamp(-farthest, farthest)


def within(x: Float[Tensor, "*batch"], largest: float) -> Float[Tensor, "*batch"]:
    """``x`` between ±``largest``, whatever its type: 1e30 is rounded up in float32.

    >>> bool(within(torch.tensor(2e30), 1e30).double() <= 1e30)
    True
    """
    return x.clamp(-_end(largest, x.dtype), _end(largest, x.dtype))


@cache
def _end(largest: float, dtype: torch.dtype) -> float:
    """The largest number of a type that is not above a limit."""
    number = torch.tensor(largest, dtype=dtype)
    if number.item() > largest:
        number = number.nextafter(torch.zeros_like(number))
    return number.item()


def clipped(
    x: Float[Tensor, "*batch"], lower: Tensor, upper: Tensor, dtype: torch.dtype
) -> Float[Tensor, "*batch2"]:
    """``x`` within bounds and in a type, which it does not leave by rounding if it can be helped.

    NaN where there is nothing between the bounds.

    Example:
        >>> tenth = torch.tensor(0.1, dtype=torch.float64)
        >>> bool(clipped(tenth, 0 * tenth, tenth, torch.float32).double() <= tenth)
        True
    """
    inside = torch.minimum(torch.maximum(x, lower), upper)
    rounded = inside.to(dtype)
    infinite = torch.full_like(rounded, torch.inf)
    wide = rounded.double()
    rounded = torch.where(wide > upper, rounded.nextafter(-infinite), rounded)
    rounded = torch.where(wide < lower, rounded.nextafter(infinite), rounded)
    return torch.where(lower <= upper, rounded, torch.nan)


def is_whole(x: Float[Tensor, "*batch"]) -> Bool[Tensor, "*batch"]:
    """Which values are integers (infinities are not)."""
    return (x == x.round()) & x.isfinite()


def softplus(x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """log(1 + exp(x)) to full precision: torch's own becomes linear at 20."""
    return -torch.nn.functional.logsigmoid(-x)


def logit(p: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """log(p / (1 − p)), finite for every p in [0, 1]."""
    kind = torch.finfo(p.dtype)
    inside = p.clamp(kind.tiny, 1 - kind.eps / 2)
    return inside.log() - torch.log1p(-inside)


def probability_bounds(floor: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """The interval [floor, 1 − floor] in the type of ``like``, without 1 where that rounds to 1."""
    low = floor.to(like)
    return low, (1 - low).clamp(max=1 - torch.finfo(like.dtype).eps / 2)


def below_one(p: Float[Tensor, "*batch"], dtype: torch.dtype) -> Float[Tensor, "*batch"]:
    """Probabilities below 1 in another type, without 1 where they round to 1.

    >>> below_one(torch.tensor(1 - 1e-12, dtype=torch.float64), torch.float32) < 1
    tensor(True)
    """
    return p.to(dtype).clamp(max=1 - torch.finfo(dtype).eps / 2)


def representable(
    x: Float[Tensor, "*batch"], most: Float[Tensor, "*batch"], dtype: torch.dtype
) -> Float[Tensor, "*batch"]:
    """``x`` bounded by ``most``, and rounded to a type, but not upwards beyond that.

    Example:
        >>> n = torch.tensor([2.0**32 - 1], dtype=torch.float64)
        >>> representable(n, n, torch.float32) < n
        tensor([True])
    """
    rounded = torch.minimum(x, most).to(dtype)
    below = torch.nextafter(rounded, torch.zeros_like(rounded))
    return torch.where(rounded.double() > most, below, rounded)


def to_interval(raw: Tensor, low: Tensor, high: Tensor) -> Tensor:
    r"""Reals to [low, high], smoothly: :math:`l + 1 / (e^{-r} + 1/(h - l))`.

    Far from an upper bound, or without one, it is low + exp(r); close to it the curve bends over.
    So no parameter is ever stuck outside its bounds with a gradient of zero.

    Example:
        >>> low, high = torch.tensor(1.0), torch.tensor(3.0)
        >>> to_interval(torch.tensor([-30.0, 0.0, 30.0]), low, high)
        tensor([1.0000, 1.6667, 3.0000])
    """
    low, high = low.to(raw), high.to(raw)
    rise = 1 / (torch.exp(-raw.clamp(-_WIDEST, _WIDEST)) + 1 / (high - low))
    return (low + rise).clamp(low, high)


def from_interval(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The inverse of :func:`to_interval`, finite at the bounds too.

    Example:
        >>> low, high = torch.tensor(1.0), torch.tensor(3.0)
        >>> from_interval(torch.tensor([1.0, 1.6667, 3.0]), low, high).round(decimals=3)
        tensor([-40.0000,   0.0000,  40.0000])
    """
    low, high = low.to(value), high.to(value)
    tiny = torch.finfo(value.dtype).tiny
    rise = value - low
    fraction = rise / (high - low).clamp(min=tiny)
    raw = rise.clamp(min=tiny).log() - torch.log1p(-fraction.clamp(max=1))
    return raw.clamp(-_WIDEST, _WIDEST)


def log_standard_gamma(
    shape: Float[Tensor, "*batch"], generator: torch.Generator | None = None
) -> Float[Tensor, "*batch"]:
    """Logarithms of draws from Gamma(shape, 1).

    The draws themselves underflow where ``shape`` is small; g·u^(1/shape), with g of shape + 1 and
    u uniform, has the same distribution and a logarithm that does not.
    """
    # torch.distributions uses the same function, but cannot hand it a generator.
    draw = torch._standard_gamma  # pyright: ignore[reportPrivateImportUsage]
    larger = draw(shape + 1, generator=generator)
    uniform = torch.rand(shape.shape, generator=generator, dtype=shape.dtype, device=shape.device)
    return larger.log() + torch.log1p(-uniform) / shape
