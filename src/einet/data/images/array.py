"""Images as arrays, in memory or in a file of numpy's."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from einet._memory import chunks
from einet.data.images.base import Images, RowIndex, as_rows
from einet.data.images.limits import MAX_PIXELS, as_max_pixels, check_pixels, open_file

__all__ = ["ArrayImages", "load", "save"]

_MAGIC, _ZIP_MAGIC = b"\x93NUMPY", b"PK"


class ArrayImages(Images):
    """Images in one array of bytes; final.

    Args:
        pixels: ``[images, height, width, channels]``, or without the last axis if grey; uint8.
        labels, name, split: As in :class:`Images`.

    Example:
        >>> grey = ArrayImages(np.zeros((100, 28, 28), dtype=np.uint8))
        >>> grey, grey[:10].shape
        (ArrayImages('images', 100 images of 28×28×1), torch.Size([10, 784]))
    """

    def __init__(
        self,
        pixels: np.ndarray,
        *,
        labels: Any = None,
        name: str = "images",
        split: str | None = None,
    ) -> None:
        if pixels.dtype != np.uint8:
            raise TypeError(f"pixels must be bytes (uint8) from 0 to 255, got {pixels.dtype}")
        if pixels.ndim not in (3, 4) or 0 in pixels.shape[1:]:
            raise ValueError(
                "pixels must have shape [images, height, width, channels] or [images, height, "
                f"width], got {list(pixels.shape)}"
            )
        count, height, width, channels = (*pixels.shape, 1)[:4]
        super().__init__((height, width, channels), count, labels=labels, name=name, split=split)
        # torch wants memory that it may write to, should anybody ask for that.
        pixels = np.require(np.asarray(pixels), requirements=["C", "W"])
        self._rows = pixels.reshape(count, self.num_variables)

    def read(
        self, rows: slice | Int[np.ndarray, " chosen"]
    ) -> UInt8[np.ndarray, "chosen variables"]:
        """Some rows of the array: a view of it where they are a slice."""
        return self._rows[rows]

    def take(self, rows: RowIndex) -> ArrayImages:
        """Some of the images, as an array of their own or a view of this one."""
        chosen = as_rows(rows, len(self))
        pixels = self._rows[chosen].reshape(-1, *self.image_shape)
        labels = self.labels_of(chosen)
        return ArrayImages(pixels, labels=labels, name=self.name, split=self.split)


def save(images: Images, path: str | PathLike[str]) -> None:
    """Write images to a ``.npy`` file, which :func:`load` opens without reading it into memory.

    For sets that are too large for that: decode them once, whatever their size, a few at a time.
    An array ``[images, height, width, channels]`` is written; labels are not.

    Args:
        images: The images.
        path: The file.

    Example:
        >>> import tempfile
        >>> grey = ArrayImages(np.zeros((100, 28, 28), dtype=np.uint8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(grey, f"{folder}/grey.npy")
        ...     np.load(f"{folder}/grey.npy").shape
        (100, 28, 28, 1)
    """
    path = Path(path)
    # Whoever finds the file finds it complete.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    shape = (len(images), *images.image_shape)
    try:
        with unfinished.open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for part in chunks(len(images), "image files", images.num_variables):
                file.write(np.ascontiguousarray(images.read(part)).data)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def load(
    path: str | PathLike[str],
    *,
    labels: Any = None,
    name: str | None = None,
    split: str | None = None,
    max_pixels: int = MAX_PIXELS,
) -> ArrayImages:
    """Open a ``.npy`` file of bytes, ``[images, height, width(, channels)]``.

    It stays on disk: the system reads what is used, and drops it again where memory is short.
    ``einet.fit`` takes such images as any others.

    Args:
        path: The file, as :func:`save` or ``numpy.save`` wrote it.
        labels, name, split: As in :class:`Images`; the name is that of the file by default.
        max_pixels: The most pixels that an image may have.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/grey.npy", np.zeros((100, 28, 28), dtype=np.uint8))
        ...     load(f"{folder}/grey.npy")
        ArrayImages('grey', 100 images of 28×28×1)
    """
    path, max_pixels = Path(path), as_max_pixels(max_pixels)
    if not path.is_file():
        raise FileNotFoundError(f"path must be a .npy file, but {path} is no file")
    with open_file(path) as file:
        start = file.read(len(_MAGIC))
    if start.startswith(_ZIP_MAGIC):
        raise ValueError(f"{path} holds several arrays (.npz); only .npy files are read")
    if start != _MAGIC:
        raise ValueError(f"{path} is no intact .npy file: it begins with {start!r}")
    try:
        # Private to this process: "r" would be read-only, of which torch could only have a copy.
        pixels = np.load(path, mmap_mode="c")
    except MemoryError:
        raise
    except Exception as error:
        # numpy evaluates the header, and raises what that stumbles over.
        raise ValueError(f"{path} is no intact .npy file: {error}") from error
    if pixels.ndim in (3, 4):
        check_pixels(f"each image in {path}", pixels.shape[1], pixels.shape[2], max_pixels)
    try:
        return ArrayImages(pixels, labels=labels, name=name or path.stem, split=split)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from error
