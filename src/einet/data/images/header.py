"""What an image file declares, read before it is decoded."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from einet._checks import missing_package
from einet.data.images.limits import MAX_PIXELS, ImageError, check_pixels

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

__all__ = ["decode", "opened"]

# What is read: rasters whose size stands in their header, by Pillow's names, the usual ones first.
# Pillow knows others, which start programs (EPS) or hold pictures of other sizes inside (ICO).
_KINDS = (
    "JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "AVIF", "JPEG2000", "DIB", "PCX", "SGI",
    "TGA",
)  # fmt: skip
_PREFIX_BYTES = 16
# Every scan of a progressive JPEG goes over all pixels, and can be a few bytes long.
_MOST_SCANS = 500
_SCAN = b"\xff\xda"
# Tags of TIFF files.
_TILE_WIDTH, _TILE_HEIGHT = 322, 323


@contextmanager
def opened(content: bytes, name: str, max_pixels: int = MAX_PIXELS) -> Iterator[Picture]:
    """An image of which the header has been read, and nothing else; closed afterwards.

    Args:
        content: The file.
        name: What error messages call it.
        max_pixels: The most pixels that it may declare.
    """
    try:
        from PIL import Image  # noqa: F401
    except ImportError as error:
        raise missing_package("pillow", "decoding images", "images") from error
    try:
        image = _identified(content)
    except MemoryError:
        raise
    except Exception as error:
        # Pillow raises what its parsers stumble over, which can be anything.
        raise _damaged(name, error) from error
    with image:
        check_pixels(name, image.height, image.width, max_pixels)
        if image.format == "TIFF":
            _check_tiles(image, name, max_pixels)
        if image.format in ("JPEG", "MPO") and content.count(_SCAN) > _MOST_SCANS:
            raise ImageError(
                f"{name} has {content.count(_SCAN)} scans, more than the {_MOST_SCANS} allowed"
            )
        yield image


def decode(image: Picture, name: str) -> None:
    """Decode an opened image, its first one if it has several, and turn it as its camera says."""
    from PIL import ImageOps

    try:
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
    except MemoryError:
        raise
    except Exception as error:
        raise _damaged(name, error) from error


def _identified(content: bytes) -> Picture:
    """What ``PIL.Image.open`` returns, whatever the size.

    That function warns of large images, and refuses larger ones, by a setting of the whole process;
    ours is an argument.
    """
    from PIL import Image

    Image.init()
    prefix, reasons = content[:_PREFIX_BYTES], []
    # Some are missing where Pillow was built without them, or is older.
    for kind in (kind for kind in _KINDS if kind in Image.OPEN):
        factory, accepts = Image.OPEN[kind]
        accepted = accepts is None or accepts(prefix)
        if isinstance(accepted, str) or not accepted:
            continue
        try:
            return factory(io.BytesIO(content), "")
        except (SyntaxError, IndexError, TypeError, struct.error) as error:
            # By this a parser says that the file is of another format. The one that is asked of all
            # files, since nothing marks those of its own, has nothing to tell.
            if accepts is not None:
                reasons.append(f"{kind}: {error}")
    raise OSError("; ".join(reasons) or "its format is unknown")


def _check_tiles(image: Picture, name: str, max_pixels: int) -> None:
    """Tiles are unpacked whole, and may be larger than the image that they belong to."""
    tags = getattr(image, "tag_v2", {})
    width, height = tags.get(_TILE_WIDTH), tags.get(_TILE_HEIGHT)
    if isinstance(width, int) and isinstance(height, int):
        check_pixels(f"a tile of {name}", height, width, max_pixels)


def _damaged(name: str, error: Exception) -> ImageError:
    return ImageError(f"{name} is no intact image: {error}")
