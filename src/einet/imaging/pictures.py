"""Pictures: images side by side, and PNG files of them."""

from __future__ import annotations

import math
import os
import secrets
from os import PathLike
from pathlib import Path

import numpy as np
from jaxtyping import Float, Integer, UInt8

from einet._checks import missing_package

__all__ = ["MISSING", "grid", "picture_size", "save_png"]

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
    size = picture_size(count, (height, width), columns, scale, margin)
    columns, step = _columns(count, columns), (height * scale + margin, width * scale + margin)
    picture = np.full((*size, 3), 255, dtype=np.uint8)
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


def picture_size(
    count: int,
    image: tuple[int, int],
    columns: int | None = None,
    scale: int = 1,
    margin: int = 2,
) -> tuple[int, int]:
    """Height and width of what :func:`grid` makes of so many images of a height and a width.

    Args:
        count: How many images there are.
        image: Height and width of each.
        columns, scale, margin: As in :func:`grid`.

    Example:
        >>> picture_size(6, (8, 8), columns=3)
        (22, 32)
    """
    if columns is not None and columns < 1:
        raise ValueError(f"columns must be at least 1, got {columns}")
    for name, value, least in (("scale", scale, 1), ("margin", margin, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    columns = _columns(count, columns)
    rows = -(-count // columns)
    return rows * (image[0] * scale + margin) + margin, columns * (
        image[1] * scale + margin
    ) + margin


def _columns(count: int, columns: int | None) -> int:
    return min(count, math.isqrt(count - 1) + 1 if columns is None else columns)


def save_png(
    path: str | PathLike[str], picture: UInt8[np.ndarray, "height width *channels"]
) -> None:
    """Write a picture, grey or RGB, in one step; its folder is made where there is none.

    Args:
        path: The file.
        picture: Bytes, such as :func:`grid` makes them.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_png(f"{folder}/new/black.png", np.zeros((8, 8, 3), dtype=np.uint8))
        ...     Path(folder, "new/black.png").read_bytes()[1:4]
        b'PNG'
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_package("pillow", "writing PNG files", "images") from error

    # A link stays a link: what it points to is replaced.
    path = Path(os.path.realpath(path))
    if picture.ndim == 3 and picture.shape[2] == 1:
        picture = picture[..., 0]
    path.parent.mkdir(parents=True, exist_ok=True)
    # A short name that nobody else has, in the same folder: a rename is one step only there.
    beside = path.with_name(f".einet-{secrets.token_hex(8)}.tmp")
    try:
        with beside.open("xb") as file:
            Image.fromarray(picture).save(file, format="png")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
