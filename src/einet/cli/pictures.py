"""Pictures of small images side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["grid", "save_png"]

_MISSING = (222, 170, 120)
_GAP = 2


def grid(images: np.ndarray, columns: int, scale: int = 4) -> np.ndarray:
    """Grey images ``[count, height, width]`` (0 to 255, NaN where missing) as one RGB picture.

    Example:
        >>> grid(np.zeros((6, 8, 8)), columns=3, scale=1).shape
        (22, 32, 3)
    """
    count, height, width = images.shape
    rows = -(-count // columns)
    shape = (rows * (height * scale + _GAP) + _GAP, columns * (width * scale + _GAP) + _GAP, 3)
    picture = np.full(shape, 255, dtype=np.uint8)
    for number, image in enumerate(images):
        known = np.nan_to_num(image).clip(0, 255).astype(np.uint8)
        rgb = np.where(np.isnan(image)[..., None], _MISSING, known[..., None]).astype(np.uint8)
        large = rgb.repeat(scale, 0).repeat(scale, 1)
        top = _GAP + (number // columns) * (height * scale + _GAP)
        left = _GAP + (number % columns) * (width * scale + _GAP)
        picture[top : top + height * scale, left : left + width * scale] = large
    return picture


def save_png(path: Path, picture: np.ndarray) -> None:
    """Write an RGB picture."""
    Image.fromarray(picture).save(path)
