"""Whether image files are grey, however they are stored."""

from __future__ import annotations

import io

import numpy as np

from einet._checks import missing_package
from einet.data.images.framing import Framing, ImageError
from einet.data.images.sources import FileSource

__all__ = ["all_grey", "is_grey"]

# Pillow's names for images that have no colours to look for.
_GREY_MODES = frozenset(("1", "L", "LA", "La", "I;16", "I;16B", "I;16L"))


def all_grey(source: FileSource) -> bool:
    """Whether all images are grey; looks no further than to the first one with colours.

    A damaged file has no say: it raises where it is read.
    """
    for number in range(len(source)):
        try:
            if not is_grey(source.read(number), source.describe(number)):
                return False
        except ImageError:
            continue
    return True


def is_grey(content: bytes, name: str) -> bool:
    """Whether a file holds no colours, or three channels that are equal in every pixel.

    Args:
        content: The file.
        name: What error messages call it.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_package("pillow", "decoding images", "images") from error
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.mode in _GREY_MODES:
                return True
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        # The decoder below says of which file, and what is wrong with it.
        pass
    pixels = Framing(channels=3)(content, name)
    return bool(np.array_equal(pixels[..., :2], pixels[..., 1:]))
