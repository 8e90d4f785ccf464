"""Colours as brightness and two differences, which tell far less about one another than R, G and B.

The lifting steps of YCoCg-R (Malvar and Sullivan, 2003) are

    Co = R − B,  t = B + Co/2,  Cg = G − t,  Y = t + Cg/2.

With halves rounded down they map bytes to whole numbers, Y in 0…255, Co and Cg in −255…255, and no
two colours to the same ones: the probability of an image is that of its numbers. Without rounding
they are linear with determinant 1: a density of (Y, Co, Cg) is a density of (R, G, B) as it is.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int16, Integer, UInt8
from torch import Tensor

__all__ = ["COLOUR_LEVELS", "Colour", "as_colour", "from_ycocg", "to_ycocg", "to_ycocg_linear"]

Colour = Literal["rgb", "ycocg"]
#: The least and the largest number that there are.
COLOUR_LEVELS: dict[Colour, tuple[int, int]] = {"rgb": (0, 255), "ycocg": (-255, 255)}


def as_colour(value: Any) -> Colour:
    """The argument ``colour``, checked."""
    if value not in get_args(Colour):
        raise ValueError(f"colour must be one of {', '.join(get_args(Colour))}, got {value!r}")
    return value


def to_ycocg(x: UInt8[Tensor, "*batch variables"]) -> Int16[Tensor, "*batch variables"]:
    """Whole numbers Y, Co, Cg of each pixel, from bytes R, G, B.

    >>> to_ycocg(torch.tensor([255, 0, 0, 10, 20, 31], dtype=torch.uint8))
    tensor([ 63, 255, -127,  20, -21,   0], dtype=torch.int16)
    """
    return _forward(x.to(torch.int16))


def to_ycocg_linear(x: UInt8[Tensor, "*batch variables"]) -> Float[Tensor, "*batch variables"]:
    """The same without rounding (float64)."""
    return _forward(x.double())


def from_ycocg(
    z: Float[Tensor, "*batch variables"] | Integer[Tensor, "*batch variables"],
) -> Float[Tensor, "*batch variables"]:
    """R, G, B of each pixel (float64); exactly what integers came from, else without rounding."""
    Y, Co, Cg = z.unflatten(-1, (-1, 3)).unbind(-1)
    t = Y - _half(Cg)
    B = t - _half(Co)
    return torch.stack([B + Co, Cg + t, B], -1).flatten(-2).double()


def _forward(x: Tensor) -> Tensor:
    R, G, B = x.unflatten(-1, (-1, 3)).unbind(-1)
    Co = R - B
    t = B + _half(Co)
    Cg = G - t
    return torch.stack([t + _half(Cg), Co, Cg], -1).flatten(-2)


def _half(x: Tensor) -> Tensor:
    return x / 2 if x.is_floating_point() else x.div(2, rounding_mode="floor")
