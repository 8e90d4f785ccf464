"""Pictures: images side by side, and PNG files of them."""

from __future__ import annotations

import math
import os
from os import PathLike
from pathlib import Path

import numpy as np
from jaxtyping import Float, Integer, UInt8

from einet._checks import missing_package

__all__ = ["MISSING", "grid", "save_png"]

#: The colour of what is missing: it stands out against photographs and grey values alike.
MISSING = (222, 170, 120)


def grid(
    images: Float[np.ndarray, "count height width *channels"]
    | Integer[np.ndarray, "count height width *channels"],
    columns: int | None = None,
    scale: int = 1,
    margin: int = 2,
) -> UInt8[np.ndarray, "height_in_all width_in_all 3"]:
    """Images as one RGB picture, row by row, on white.

    Args:
        images: ``[count, height, width]`` if grey, else with an axis of 1 or 3 channels at the end;
            from 0 to 255 and cut off beyond, NaN where missing.
        columns: Images in a row; by default as many as make it about a square.
        scale: Pixels on each side of what was one.
        margin: Pixels around each image.

    Example:
        >>> grid(np.zeros((6, 8, 8)), columns=3, scale=1).shape
        (22, 32, 3)
    """
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3) or 0 in images.shape:
        raise ValueError(
            "images must have shape [count, height, width] or [count, height, width, 1 or 3], "
            f"and there must be one at least, got {list(images.shape)}"
        )
    count, height, width, _ = images.shape
    columns = math.ceil(math.sqrt(count)) if columns is None else columns
    for name, value, least in (("columns", columns, 1), ("scale", scale, 1), ("margin", margin, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    columns, step = min(columns, count), (height * scale + margin, width * scale + margin)
    rows = -(-count // columns)
    picture = np.full((rows * step[0] + margin, columns * step[1] + margin, 3), 255, dtype=np.uint8)
    for number, image in enumerate(images):
        missing = np.isnan(image).any(-1, keepdims=True)
        known = np.rint(np.nan_to_num(image)).clip(0, 255)
        rgb = np.where(missing, MISSING, known).astype(np.uint8)
        large = rgb.repeat(scale, 0).repeat(scale, 1)
        top, left = (
            margin + place * s for place, s in zip(divmod(number, columns), step, strict=True)
        )
        picture[top : top + height * scale, left : left + width * scale] = large
    return picture


def save_png(
    path: str | PathLike[str], picture: UInt8[np.ndarray, "height width *channels"]
) -> None:
    """Write a picture, grey or RGB, in one step; its folder is made where there is none."""
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_package("pillow", "writing PNG files", "images") from error

    path = Path(path)
    if picture.ndim == 3 and picture.shape[2] == 1:
        picture = picture[..., 0]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        Image.fromarray(picture).save(beside, format="png")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
