"""Sets of images by their path, whatever kind of files lie there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from einet._memory import check_room
from einet.data.images import ArrayImages, Images, array, celeba, folder, idx, svhn
from einet.data.images.framing import Framing
from einet.data.images.grey import is_grey
from einet.data.images.limits import (
    MAX_PIXELS,
    ImageError,
    as_max_pixels,
    file_bytes,
    read_file,
)
from einet.data.images.sources import is_image
from einet.imaging.pixels import Pixels

__all__ = ["Kind", "detect", "in_memory", "is_data", "open_images", "parse_size", "read_image"]

Kind = Literal["auto", "folder", "idx", "svhn", "celeba", "npy"]

# Images decoded between two reports of progress.
_AT_ONCE = 256
_MOST_DIGITS = 10
# How files of data end, besides images.
_DATA = (".mat", ".npy", ".npz", ".zip", "list_eval_partition.txt")


def open_images(
    path: str | PathLike[str],
    kind: str = "auto",
    *,
    split: str = "train",
    size: int | Sequence[int] | None = None,
    crop: int | Sequence[int] | None = None,
    channels: int | None = None,
    limit: int | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Images:
    """Open a set of images.

    Args:
        path: A folder, a zip archive or a ``.npy`` file.
        kind: What is there: ``"folder"`` (any images), ``"idx"`` (MNIST and its like), ``"svhn"``,
            ``"celeba"`` or ``"npy"`` (bytes); ``"auto"`` looks.
        split: ``"train"`` or ``"test"`` where a set has such parts. CelebA without its list of
            parts, folders and ``.npy`` files have none, and are taken as a whole.
        size, crop: As in :class:`~einet.data.images.Framing`; for image files only.
        channels: 3 for colours, 1 for grey; for image files only. By default 3, but 1 for a folder
            in which all images are grey (:func:`einet.data.images.folder.load`).
        limit: Take no more than so many images, the first ones.
        max_pixels: The most pixels that an image may declare; see
            :mod:`einet.data.images.limits`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/grey.npy", np.zeros((100, 28, 28), dtype=np.uint8))
        ...     open_images(f"{folder}/grey.npy", limit=10)
        ArrayImages('grey', 10 images of 28×28×1)
    """
    path = Path(path)
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}")
    kind = detect(path) if kind == "auto" else kind
    framed = {"size": size, "crop": crop, "channels": channels}
    given = [name for name, value in framed.items() if value is not None]
    if kind in ("idx", "svhn", "npy") and given:
        raise ValueError(f"{given[0]} is for image files, but {path} is read as {kind}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    images = _open(path, kind, split, size, crop, channels, as_max_pixels(max_pixels))
    return images if limit is None else images.take(slice(0, limit))


def _open(
    path: Path,
    kind: str,
    split: str,
    size: int | Sequence[int] | None,
    crop: int | Sequence[int] | None,
    channels: int | None,
    max_pixels: int,
) -> Images:
    if kind == "idx":
        return idx.load(path, split, max_pixels=max_pixels)
    if kind == "svhn":
        return svhn.load(path, split, max_pixels=max_pixels)
    if kind == "npy":
        return array.load(path, max_pixels=max_pixels)
    if kind == "celeba":
        framed: dict[str, Any] = {"size": size, "crop": crop, "max_pixels": max_pixels}
        framed["channels"] = 3 if channels is None else channels
        try:
            return celeba.load(path, split, **framed)
        except FileNotFoundError:
            celeba.find(path)  # the faces themselves may be what is missing
            return celeba.load(path, "all", **framed)
    return folder.load(path, size=size, crop=crop, channels=channels, max_pixels=max_pixels)


def in_memory(images: Images, progress: Callable[[int], None] | None = None) -> ArrayImages:
    """The same images, all of them decoded.

    Args:
        images: The images; those that are an array already are returned as they are.
        progress: Called with the number of images that are done, again and again.

    Raises:
        MemoryError: If there is no room for them, before any is decoded.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as root:
        ...     Image.new("RGB", (64, 48), "brown").save(f"{root}/cat.png")
        ...     images = in_memory(open_images(root, size=8))
        >>> type(images).__name__, images[0].shape  # the files are gone
        ('ArrayImages', torch.Size([192]))
    """
    if isinstance(images, ArrayImages):
        return images
    check_room(f"{len(images)} images of {images.name}", len(images) * images.num_variables)
    pixels = np.empty((len(images), images.num_variables), dtype=np.uint8)
    for start in range(0, len(images), _AT_ONCE):
        rows = slice(start, min(start + _AT_ONCE, len(images)))
        pixels[rows] = images.read(rows)
        if progress is not None:
            progress(rows.stop)
    pixels = pixels.reshape(-1, *images.image_shape)
    labels = images.labels_of(slice(None))
    return ArrayImages(pixels, labels=labels, name=images.name, split=images.split)


def detect(path: str | PathLike[str]) -> str:
    """What kind of set lies at a path, by the names of its files; any images if by none.

    Args:
        path: A folder, a zip archive or a ``.npy`` file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     Path(root, "train-images-idx3-ubyte").touch()
        ...     detect(root), detect("digits.npy")
        ('idx', 'npy')
    """
    path = Path(path)
    if path.suffix == ".npy":
        return "npy"
    if path.name in ("img_align_celeba", "img_align_celeba.zip"):
        return "celeba"
    if path.is_dir():
        if any(path.glob("*_32x32.mat")):
            return "svhn"
        if any(path.glob("*idx3-ubyte*")) or any(path.glob("raw/*idx3-ubyte*")):
            return "idx"
        if any(path.glob("img_align_celeba*")) or any(path.glob("Img/img_align_celeba*")):
            return "celeba"
    return "folder"


def is_data(name: str) -> bool:
    """Whether a file of this name may be a part of a set of images.

    Args:
        name: The name of the file.

    Example:
        >>> [is_data(name) for name in ("a.JPG", "train_32x32.mat", "model.einet")]
        [True, True, False]
    """
    return is_image(name) or name.lower().endswith(_DATA) or "-ubyte" in name


def read_image(
    path: str | PathLike[str],
    pixels: Pixels,
    resize: bool = False,
    grey: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> UInt8[Tensor, "1 variables"]:
    """One image as a row of bytes, checked to be of a model's size and colours.

    Args:
        path: The file.
        pixels: What images the model has.
        resize: Whether the centre of an image of another size is resized to fit.
        grey: Whether an image with colours is turned grey for a model of grey images; it is an
            error otherwise.
        max_pixels: As in :class:`~einet.data.images.Framing`.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (64, 48), "brown").save(f"{folder}/cat.png")
        ...     read_image(f"{folder}/cat.png", Pixels((8, 8, 3)), resize=True).shape
        torch.Size([1, 192])
    """
    path, max_pixels = Path(path), as_max_pixels(max_pixels)
    if not path.is_file():
        raise FileNotFoundError(f"there is no image {path}")
    content = read_file(path, file_bytes(max_pixels))
    if pixels.channels == 1 and not grey and not is_grey(content, str(path), max_pixels):
        raise ImageError(
            f"{path} has colours, but the model is of grey images; give a grey one, or have it "
            "read as grey (--grey)"
        )
    size = pixels.grid if resize else None
    image = Framing(size, channels=pixels.channels, enlarge=True, max_pixels=max_pixels)(
        content, str(path)
    )
    if image.shape != pixels.shape:
        raise ImageError(
            f"{path} is {image.shape[0]}×{image.shape[1]} pixels (height×width), but the model is "
            f"of images of {pixels.shape[0]}×{pixels.shape[1]}; give one of that size, or have it "
            "resized (--resize)"
        )
    return torch.from_numpy(image.copy()).reshape(1, -1)


def parse_size(text: str, name: str = "size") -> tuple[int, int]:
    """Height and width from ``"HEIGHTxWIDTH"``, or from one number for both.

    Args:
        text: What was written.
        name: What errors call it.

    Example:
        >>> parse_size("32x48"), parse_size("32")
        ((32, 48), (32, 32))
    """
    parts = text.lower().replace("×", "x").split("x")
    # No image has a side of more digits, and of thousands of them Python makes no number.
    whole = (part.strip().isdecimal() and len(part) < _MOST_DIGITS for part in parts)
    numbers = [int(part) if is_whole else 0 for part, is_whole in zip(parts, whole, strict=True)]
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise ValueError(
            f"{name} must be HEIGHTxWIDTH or one number for both, such as 32x32, got {text[:80]!r}"
        )
    return numbers[0], numbers[-1]
