"""Roots of many monotone functions at once, each between two points, to the last digit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["first_not_below", "root_between"]

# Halving alone takes about as many rounds as a float64 has bits; interpolation takes ten.
_MOST_ROUNDS = 300


def root_between(
    function: Callable[[Float[Tensor, "*cells"]], Float[Tensor, "*cells"]],
    lower: Float[Tensor, "*cells"],
    upper: Float[Tensor, "*cells"],
    at_lower: Float[Tensor, "*cells"],
    at_upper: Float[Tensor, "*cells"],
    resolution: Callable[[Float[Tensor, "*cells"]], Float[Tensor, "*cells"]],
    whole: bool = False,
) -> Float[Tensor, "*cells"]:
    """The least x of each cell with ``function(x)`` ≥ 0, up to the resolution.

    This is the method of Chandrupatla (1997): each round tries a point inside the bracket, by
    inverse quadratic interpolation where three points promise that it works, and in the middle
    otherwise. All cells are done side by side until the last one has converged.

    Args:
        function: It never falls, but for rounding.
        lower, upper: Where it is below 0, and where it is not.
        at_lower, at_upper: What it is there.
        resolution: How close two points x may come: a bracket of twice that is narrow enough.
        whole: Whether points are whole numbers; brackets are then closed until they are neighbours.
    """
    # The newest point, the other end of the bracket, and the point before.
    a, b, c = upper.clone(), lower.clone(), lower.clone()
    fa, fb, fc = at_upper.clone(), at_lower.clone(), at_lower.clone()
    t = torch.full_like(a, 0.5)
    for _ in range(_MOST_ROUNDS):
        width = (b - a).abs()
        least = torch.ones_like(a) if whole else resolution(torch.where(fa.abs() < fb.abs(), a, b))
        done = width <= least if whole else (width <= 2 * least) | (fa == 0)
        if bool(done.all()):
            return torch.where(fa >= 0, a, b)
        share = (least / width).clamp(max=0.5)
        t = torch.minimum(torch.maximum(t, share), 1 - share)
        x = a + t * (b - a)
        if whole:
            low, high = torch.minimum(a, b), torch.maximum(a, b)
            x = torch.minimum(torch.maximum(x.floor(), low + 1), high - 1)
        x = torch.where(done, a, x)
        fx = torch.where(done, fa, function(x))
        if bool(fx.isnan().any()):
            raise ArithmeticError("a distribution function is NaN between its ends")
        same = (fx >= 0) == (fa >= 0)
        c, fc = torch.where(same, a, b), torch.where(same, fa, fb)
        b, fb = torch.where(same, b, a), torch.where(same, fb, fa)
        a, fa = x, fx
        t = _next_place(a, b, c, fa, fb, fc)
    raise ArithmeticError(
        f"no quantile to the last digit within {_MOST_ROUNDS} rounds; does a family's "
        "log_prob_between fall as its interval grows?"
    )


def _next_place(
    a: Tensor, b: Tensor, c: Tensor, fa: Tensor, fb: Tensor, fc: Tensor
) -> Float[Tensor, "*cells"]:
    """Where to try next, as a share of the way from a to b."""
    xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
    smooth = (phi * phi < xi) & ((1 - phi) * (1 - phi) < 1 - xi)
    t = fa / (fb - fa) * (fc / (fb - fc)) + (c - a) / (b - a) * (fa / (fc - fa)) * (fb / (fc - fb))
    return torch.where(smooth & t.isfinite(), t, 0.5)


def first_not_below(
    function: Callable[[Float[Tensor, "*cells"]], Float[Tensor, "*cells"]],
    level: Float[Tensor, "*cells"],
    whole: bool = False,
    rounds: int = 64,
) -> tuple[Float[Tensor, "*cells"], Float[Tensor, "*cells"]]:
    """The last float64 with ``function(x)`` < ``level`` and the first with not less, of each cell.

    Numbers are halved in their own order, so that it takes as many rounds as they have bits, be
    the answer ever so large or small; after fewer rounds the two are as many first bits apart.

    Args:
        function: It never falls, and reaches the level.
        level: The level of each cell.
        whole: Whether to ask at whole numbers only.
        rounds: How many times to halve; after 64 the two are neighbours.
    """
    high = torch.full_like(level, torch.finfo(torch.float64).max).view(torch.int64)
    low = -high
    for _ in range(rounds):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        below = function(_value(middle, whole)) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        if whole and bool((_value(high, whole) - _value(low, whole) <= 1).all()):
            break
    return _value(low, whole), _value(high, whole)


_SIGN = -(1 << 63)


def _value(number: Tensor, whole: bool) -> Tensor:
    """The float64 of that place in the order of all of them, or the whole number not above it."""
    x = torch.where(number < 0, _SIGN - number, number).view(torch.float64)
    return x.floor() if whole else x
