"""Any images in a folder or a zip archive.

Example:
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from einet.data.images import folder
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for name in ("cat", "dog"):
    ...         Image.new("RGB", (640, 480), "brown").save(Path(root) / f"{name}.png")
    ...     folder.load(root, size=32)[:].shape
    torch.Size([2, 3072])
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from einet.data.images.files import ImageFiles
from einet.data.images.framing import Framing
from einet.data.images.grey import all_grey
from einet.data.images.limits import MAX_PIXELS, as_max_pixels
from einet.data.images.sources import open_source

__all__ = ["load"]


def load(
    root: str | PathLike[str],
    *,
    size: int | Sequence[int] | None = None,
    crop: int | Sequence[int] | None = None,
    channels: int | None = None,
    enlarge: bool = False,
    workers: int | None = None,
    keep: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> ImageFiles:
    """All images below a folder, sorted by their paths, decoded when they are asked for.

    Args:
        root: The folder, or a zip archive of one.
        size, crop, enlarge, max_pixels: What is made of each image; see
            :class:`~einet.data.images.Framing`. With neither ``size`` nor ``crop`` all images must
            have one size.
        channels: 3 for RGB, 1 for grey. By default 1 if all images are grey, that is without
            colours or with three channels that are equal in every pixel; 3 as soon as one is not.
        workers, keep: See :class:`~einet.data.images.ImageFiles`.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as root:
        ...     for name in ("cat", "dog"):
        ...         Image.new("L", (64, 48), "grey").save(f"{root}/{name}.png")
        ...     len(load(root, size=8)), load(root, size=8).channels
        (2, 1)
    """
    source = open_source(root)
    if channels is None:
        channels = 1 if all_grey(source, as_max_pixels(max_pixels)) else 3
    framing = Framing(size, crop, channels, enlarge, max_pixels)
    name = Path(root).resolve().stem or "images"
    return ImageFiles(source, framing, workers=workers, keep=keep, name=name)
