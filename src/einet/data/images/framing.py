"""From the bytes of an image file to pixels of the wanted size and colours."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from einet._checks import missing_package

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

__all__ = ["Framing", "ImageError"]

# What Pillow raises for damaged files, apart from its own errors, all of which are OSErrors.
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error)


class ImageError(OSError):
    """A file that is no intact image, or an image that does not have the size it should have."""


class Framing:
    """What is made of each image: a centre crop, a size, colour or grey; final.

    Orientation marks of cameras are obeyed, what is transparent becomes white, and of 16 bits the
    upper 8 are kept.

    Args:
        size: Target height and width, or one number for both. The largest centred part of that
            aspect ratio is resized, so that nothing is distorted. None: no resizing.
        crop: Height and width of the centre to cut out first, in pixels of the file. None: all.
        channels: 3 for RGB, 1 for grey.
        enlarge: Whether images smaller than ``size`` are enlarged; otherwise they are an error.

    Example:
        >>> Framing(size=64, crop=(120, 100))
        Framing(size=(64, 64), crop=(120, 100), channels=3)
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        crop: int | Sequence[int] | None = None,
        channels: int = 3,
        enlarge: bool = False,
    ) -> None:
        self.size, self.crop = _as_pair("size", size), _as_pair("crop", crop)
        if channels not in (1, 3):
            raise ValueError(f"channels must be 3 (RGB) or 1 (grey), got {channels!r}")
        self.channels, self.enlarge = int(channels), enlarge

    def __call__(self, content: bytes, name: str) -> UInt8[np.ndarray, "height width channels"]:
        """Decode a file; ``name`` is what error messages call it."""
        try:
            from PIL import Image, ImageOps
        except ImportError as error:
            raise missing_package("pillow", "decoding images", "images") from error
        try:
            with Image.open(io.BytesIO(content)) as image:
                image.load()
                ImageOps.exif_transpose(image, in_place=True)
                picture = self._framed(image, name)
        except ImageError:
            raise
        except (*_DAMAGED, Image.DecompressionBombError) as error:
            raise ImageError(f"{name} is no intact image: {error}") from error
        pixels = np.asarray(picture)
        return pixels.reshape(*pixels.shape[:2], self.channels)

    def _framed(self, image: Picture, name: str) -> Picture:
        from PIL import Image

        if self.crop is not None:
            height, width = self.crop
            if image.height < height or image.width < width:
                raise ImageError(
                    f"{name} is {_shown(image)} pixels (height×width), smaller than "
                    f"crop={self.crop}; allowed are crops that every image contains"
                )
            image = _centre(image, height, width)
        image = _recoloured(image, self.channels, name)
        if self.size is None:
            return image
        height, width = self.size
        scale = min(image.height / height, image.width / width)
        if scale < 1 and not self.enlarge:
            what = "" if self.crop is None else " after cropping"
            raise ImageError(
                f"{name} is {_shown(image)} pixels (height×width){what}, smaller than "
                f"size={self.size}; give a smaller size, or enlarge=True"
            )
        if scale == 1:
            return _centre(image, height, width)
        across, down = min(width * scale, image.width), min(height * scale, image.height)
        left, top = (image.width - across) / 2, (image.height - down) / 2
        # Pillow widens this filter to the scale: every pixel counts, and unlike with the sharper
        # ones nothing overshoots and heaps up at 0 and 255.
        return image.resize(
            (width, height),
            Image.Resampling.BILINEAR,
            box=(left, top, min(left + across, image.width), min(top + down, image.height)),
        )

    def __repr__(self) -> str:
        enlarge = ", enlarge=True" if self.enlarge else ""
        return f"Framing(size={self.size}, crop={self.crop}, channels={self.channels}{enlarge})"


def _as_pair(name: str, value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    message = f"{name} must be a positive whole number or two, (height, width), got {value!r}"
    pair = tuple(value) if isinstance(value, Sequence) else (value, value)
    whole = all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in pair)
    if len(pair) != 2 or not whole:
        raise TypeError(message)
    if min(pair) < 1:
        raise ValueError(message)
    return int(pair[0]), int(pair[1])


def _shown(image: Picture) -> str:
    return f"{image.height}×{image.width}"


def _centre(image: Picture, height: int, width: int) -> Picture:
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _recoloured(image: Picture, channels: int, name: str) -> Picture:
    from PIL import Image

    if image.mode.startswith("I;16"):
        # Pillow itself would cut off at 255.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ImageError(
            f"{name} has 32 bits for each pixel (mode {image.mode}); allowed are 8 or 16 bits"
        )
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB" if channels == 3 else "L")
