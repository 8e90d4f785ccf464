"""How much samples jump where one leaf ends and the next begins.

Leaves of a Poon–Domingos structure are cut at known columns. The mean difference between pixels to
the left and to the right of those columns, divided by that of all other neighbours, is 1 where cuts
do not show, as in real images.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import einet
from einet.data.images import ArrayImages
from einet.imaging import Pixels
from experiments.images.settings import Settings

__all__ = ["borders", "stripes", "stripes_of"]

_IMAGES = 500


def borders(settings: Settings, width: int) -> list[int]:
    """The columns that begin a leaf, if leaves end at columns at all and are wider than one."""
    if settings.structure != "poon_domingos":
        return []
    finest = width / 4 if settings.delta is None else min(settings.delta)
    if finest <= 1:
        return []
    return [math.ceil(finest * cut) for cut in range(1, math.ceil(width / finest))]


def stripes(images: Tensor, columns: list[int]) -> float:
    """The ratio for images ``[number, height, width, channels]``."""
    jumps = images.double().diff(dim=2).abs().mean((0, 1, 3))
    at = torch.zeros(len(jumps), dtype=torch.bool)
    at[[column - 1 for column in columns]] = True
    at = at.to(jumps.device)
    return float(jumps[at].mean() / jumps[~at].mean())


@torch.no_grad()
def stripes_of(
    model: einet.Model, settings: Settings, pixels: Pixels, test: ArrayImages | None
) -> dict[str, float]:
    """That of samples, and of test images if there are any; nothing where there are no borders."""
    columns = borders(settings, pixels.shape[1])
    if not columns:
        return {}
    drawn = pixels.to_pictures(model.sample(_IMAGES, leaves="mean", seed=settings.seed))
    found = {"stripes": stripes(torch.from_numpy(drawn).view(-1, *pixels.shape), columns)}
    if test is not None:
        real = test.take(slice(0, _IMAGES)).tensor().view(-1, *pixels.shape)
        found["stripes_of_test_images"] = stripes(real, columns)
    return found
