"""MNIST, Fashion-MNIST and others in the same idx files.

Example:
    >>> from einet.data.images import idx
    >>> train = idx.load("mnist", "train")  # doctest: +SKIP
    >>> train, train.labels[:5]  # doctest: +SKIP
    (ArrayImages('mnist', split='train', 60000 images of 28×28×1), tensor([5, 0, 4, 1, 9]))
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import UInt8

from einet.data.images.array import ArrayImages
from einet.data.images.limits import (
    MAX_PIXELS,
    Readable,
    as_max_pixels,
    check_pixels,
    check_unpacked,
    open_file,
    read_some,
)

__all__ = ["Split", "find", "load", "read"]

Split = Literal["train", "test"]

_PREFIX = {"train": "train", "test": "t10k"}
_KIND = {"images": "idx3", "labels": "idx1"}
_UNSIGNED_BYTE = 8
_GZIP = b"\x1f\x8b"
# numpy knows no arrays with more axes in all its versions.
_MOST_AXES = 32


def load(root: str | PathLike[str], split: str, *, max_pixels: int = MAX_PIXELS) -> ArrayImages:
    """The images of a split; their labels are read when they are asked for, and may be absent.

    Args:
        root: The folder that holds ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte`` and the
            same with ``t10k``, or a folder ``raw`` with them; each as it is or compressed, with
            ``.gz`` at the end. Without a file of labels everything works but ``images.labels``,
            which then raises ``FileNotFoundError``.
        split: ``"train"`` or ``"test"``.
        max_pixels: The most pixels that an image may have, and four times as many bytes may be in a
            compressed file; more if it is not small itself (:mod:`~einet.data.images.limits`).

    Example:
        >>> import tempfile
        >>> header = bytes([0, 0, 8, 3]) + struct.pack(">3I", 5, 28, 28)
        >>> with tempfile.TemporaryDirectory() as root:
        ...     path = Path(root, "train-images-idx3-ubyte")
        ...     written = path.write_bytes(header + bytes(5 * 28 * 28))
        ...     images = load(root, "train")
        >>> len(images), images.image_shape
        (5, (28, 28, 1))
    """
    image_file = find(root, split, "images")
    pixels = read(image_file, max_pixels=max_pixels)
    if pixels.ndim != 3:
        raise ValueError(
            f"{image_file} must hold an array [images, height, width], got {list(pixels.shape)}"
        )
    check_pixels(f"each image in {image_file}", pixels.shape[1], pixels.shape[2], max_pixels)
    labels = partial(_read_labels, root, split, image_file, len(pixels))
    return ArrayImages(pixels, labels=labels, name=Path(root).resolve().name, split=split)


def _read_labels(
    root: str | PathLike[str], split: str, image_file: Path, count: int
) -> UInt8[np.ndarray, " images"]:
    label_file = find(root, split, "labels")
    labels = read(label_file)
    if labels.shape != (count,):
        raise ValueError(
            f"{label_file} must hold one label for each of the {count} images in {image_file}, "
            f"got an array of shape {list(labels.shape)}"
        )
    return labels


def find(root: str | PathLike[str], split: str, content: str) -> Path:
    """The file with the images or labels of a split; raises where there is none.

    Args:
        root: The folder of the files; see :func:`load`.
        split: ``"train"`` or ``"test"``.
        content: ``"images"`` or ``"labels"``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     Path(root, "t10k-labels-idx1-ubyte.gz").touch()
        ...     find(root, "test", "labels").name
        't10k-labels-idx1-ubyte.gz'
    """
    if split not in get_args(Split):
        raise ValueError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
    if content not in _KIND:
        raise ValueError(f"content must be one of {', '.join(_KIND)}, got {content!r}")
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"root must be the folder of the idx files, but {root} is none")
    tried = []
    for inside in ("", "raw"):
        for joint in "-.":
            name = f"{_PREFIX[split]}-{content}{joint}{_KIND[content]}-ubyte"
            for path in (root / inside / name, root / inside / f"{name}.gz"):
                if path.is_file():
                    return path
                tried.append(str(path.relative_to(root)))
    raise FileNotFoundError(
        f"the {split} {content} are not in root={root}; looked for {', '.join(tried)}"
    )


def read(path: str | PathLike[str], *, max_pixels: int = MAX_PIXELS) -> UInt8[np.ndarray, "..."]:
    """Read the array of bytes in an idx file, compressed by gzip or not, whatever its name.

    Args:
        path: The file.
        max_pixels: As in :func:`load`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     path = Path(root, "labels")
        ...     written = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 1, 7]))
        ...     read(path)
        array([7, 1, 7], dtype=uint8)
    """
    path, max_pixels = Path(path), as_max_pixels(max_pixels)
    with open_file(path) as file:
        packed = os.fstat(file.fileno()).st_size
        compressed = file.read(2) == _GZIP
        file.seek(0)
        try:
            if compressed:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    return _read_array(unpacked, path, packed, max_pixels)
            return _read_array(file, path, None, max_pixels)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is no intact gzip file: {error}") from error


def _read_array(
    file: Readable, path: Path, packed: int | None, max_pixels: int
) -> UInt8[np.ndarray, "..."]:
    """The array of a file; ``packed`` are the bytes that it was compressed to, if it was."""
    shape = _read_header(file, path)
    size = math.prod(shape)
    if packed is not None:
        check_unpacked(str(path), packed, size, max_pixels)
    # Not all at once: a damaged header may promise more than there is memory.
    content = read_some(file, size + 1)
    if len(content) != size:
        has = f"{len(content)}" if len(content) < size else "more"
        raise ValueError(
            f"{path} must hold {size} bytes after its header, which promises an array of shape "
            f"{list(shape)}, but it has {has}"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _read_header(file: Readable, path: Path) -> tuple[int, ...]:
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or not start[3]:
        raise ValueError(f"{path} is no idx file: it begins with {start!r}")
    kind, ndim = start[2], start[3]
    if kind != _UNSIGNED_BYTE:
        raise ValueError(
            f"{path} holds values of the idx type {kind:#04x}; only unsigned bytes (0x08) are read"
        )
    if ndim > _MOST_AXES:
        raise ValueError(f"{path} declares an array of {ndim} axes; at most {_MOST_AXES} are read")
    sizes = file.read(4 * ndim)
    if len(sizes) < 4 * ndim:
        raise ValueError(f"{path} ends within its header of {ndim} sizes")
    return struct.unpack(f">{ndim}I", sizes)
