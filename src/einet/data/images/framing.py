"""From the bytes of an image file to pixels of the wanted size and colours."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from einet.data.images.header import decode, opened
from einet.data.images.limits import MAX_PIXELS, Gate, ImageError, as_max_pixels

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

__all__ = ["Framing", "ImageError"]

# What Pillow raises where it cannot make of an image what is wanted.
_UNFIT = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error)
# Threads decode images at the same time, with several copies of each: of so many pixels in all.
_gate = Gate(MAX_PIXELS)


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
        max_pixels: The most pixels that a file may declare. It is what its header says that is
            compared with it, before anything is decoded.

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
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self.size, self.crop = _as_pair("size", size), _as_pair("crop", crop)
        if channels not in (1, 3):
            raise ValueError(f"channels must be 3 (RGB) or 1 (grey), got {channels!r}")
        self.channels, self.enlarge = int(channels), enlarge
        self.max_pixels = as_max_pixels(max_pixels)

    def __call__(self, content: bytes, name: str) -> UInt8[np.ndarray, "height width channels"]:
        """Decode a file; ``name`` is what error messages call it."""
        with (
            opened(content, name, self.max_pixels) as image,
            _gate.passing(image.width * image.height),
        ):
            decode(image, name)
            try:
                pixels = np.asarray(self._framed(image, name))
            except ImageError:
                raise
            except _UNFIT as error:
                raise ImageError(f"{name} is no intact image: {error}") from error
        return pixels.reshape(*pixels.shape[:2], self.channels)

    def _framed(self, image: Picture, name: str) -> Picture:
        from PIL import Image

        # Pillow has 32 bits for the 16 of these formats.
        is_wide = image.mode == "I" and image.format in ("PNG", "PPM")
        if self.crop is not None:
            height, width = self.crop
            if image.height < height or image.width < width:
                raise ImageError(
                    f"{name} is {_shown(image)} pixels (height×width), smaller than "
                    f"crop={self.crop}; allowed are crops that every image contains"
                )
            image = _centre(image, height, width)
        image = _recoloured(image, self.channels, name, is_wide)
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
        most = "" if self.max_pixels == MAX_PIXELS else f", max_pixels={self.max_pixels}"
        shown = f"size={self.size}, crop={self.crop}, channels={self.channels}{enlarge}{most}"
        return f"Framing({shown})"


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


def _recoloured(image: Picture, channels: int, name: str, is_wide: bool = False) -> Picture:
    from PIL import Image

    if is_wide or image.mode.startswith("I;16"):
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
