"""Whether image files are grey, however they are stored."""

from __future__ import annotations

import numpy as np

from einet.data.images.framing import Framing
from einet.data.images.header import opened
from einet.data.images.limits import MAX_PIXELS, ImageError, file_bytes
from einet.data.images.sources import FileSource

__all__ = ["all_grey", "is_grey"]

# Pillow's names for images that have no colours to look for.
_GREY_MODES = frozenset(("1", "L", "LA", "La", "I;16", "I;16B", "I;16L"))


def all_grey(source: FileSource, max_pixels: int = MAX_PIXELS) -> bool:
    """Whether all images are grey; looks no further than to the first one with colours.

    A damaged file has no say: it raises where it is read.
    """
    for number in range(len(source)):
        try:
            content = source.read(number, file_bytes(max_pixels))
            if not is_grey(content, source.describe(number), max_pixels):
                return False
        except ImageError:
            continue
    return True


def is_grey(content: bytes, name: str, max_pixels: int = MAX_PIXELS) -> bool:
    """Whether a file holds no colours, or three channels that are equal in every pixel.

    Args:
        content: The file.
        name: What error messages call it.
        max_pixels: As in :class:`~einet.data.images.Framing`.
    """
    with opened(content, name, max_pixels) as image:
        if image.mode in _GREY_MODES:
            return True
    pixels = Framing(channels=3, max_pixels=max_pixels)(content, name)
    return bool(np.array_equal(pixels[..., :2], pixels[..., 1:]))
