"""The pictures of Fig. 4: real images, samples, and covered images with their reconstructions."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import einet
from einet.data.images import ArrayImages
from einet.imaging import Pixels, masks
from einet.imaging.pictures import grid, save_png

__all__ = ["PANELS", "draw"]

#: The files that are written.
PANELS = (
    "real",
    "samples",
    "covered-top",
    "reconstructed-top",
    "covered-left",
    "reconstructed-left",
)
_COLUMNS, _ROWS = 8, 6
_SEED = 0


@torch.no_grad()
def draw(model: einet.Model, pixels: Pixels, test: ArrayImages, folder: Path) -> None:
    """Write all panels.

    As in the paper and its addendum, samples show the means of the leaves that were chosen, and
    reconstructions are such samples given what is visible: of a mixture first the component is
    drawn from its posterior.
    """
    images = pixels.to_model(test.take(slice(0, _COLUMNS * _ROWS)).tensor().to(model.device))
    _save(folder / "real.png", pixels, images)
    drawn = model.sample(_COLUMNS * _ROWS, leaves="mean", seed=_SEED)
    _save(folder / "samples.png", pixels, drawn)
    for which in ("top", "left"):
        covered = masks.over_channels(masks.half(pixels.grid, which), pixels.channels)
        covered = covered.to(model.device).expand(images.shape)
        _save(folder / f"covered-{which}.png", pixels, images, covered)
        posterior = model.given(images, ~covered)
        guessed = posterior.sample(1, leaves="mean", seed=_SEED)[0]
        _save(folder / f"reconstructed-{which}.png", pixels, guessed)


def _save(path: Path, pixels: Pixels, x: Tensor, covered: Tensor | None = None) -> None:
    shown = torch.from_numpy(pixels.to_pictures(x)).double()
    if covered is not None:
        shown[covered.view(shown.shape).cpu()] = torch.nan
    zoom = max(1, 64 // pixels.shape[1])
    save_png(path, grid(shown.numpy(), _COLUMNS, zoom))
