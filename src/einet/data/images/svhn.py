"""The street view house numbers, cropped digits (Netzer et al., 2011).

Example:
    >>> from einet.data.images import svhn
    >>> train, valid = svhn.paper_split("svhn")  # doctest: +SKIP
    >>> train  # doctest: +SKIP
    ArrayImages('svhn', split='paper-train', 581131 images of 32×32×3)
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int, UInt8

from einet._memory import check_room
from einet.data.images import matlab
from einet.data.images.array import ArrayImages
from einet.data.images.limits import MAX_PIXELS, as_max_pixels

__all__ = ["Split", "find", "load", "paper_split"]

Split = Literal["train", "extra", "test"]

_SIDE, _CHANNELS = 32, 3
_EXPECTED = "32×32×3×N"
#: The paper trains on so many images of the train file, and on all extra ones.
_PAPER_TRAIN = 50_000


def load(root: str | PathLike[str], split: str, *, max_pixels: int = MAX_PIXELS) -> ArrayImages:
    """The images of one file, with their digits as labels.

    Args:
        root: The folder that holds ``train_32x32.mat``, ``extra_32x32.mat`` and
            ``test_32x32.mat``; those that are not asked for may be absent.
        split: ``"train"``, ``"extra"`` or ``"test"``.
        max_pixels: Four times as many bytes may be in a compressed file; more if it is not small
            itself (:mod:`~einet.data.images.limits`).

    Example:
        >>> import tempfile
        >>> from scipy.io import savemat
        >>> images = {"X": np.zeros((32, 32, 3, 5), np.uint8), "y": np.arange(1, 6, dtype=np.uint8)}
        >>> with tempfile.TemporaryDirectory() as root:
        ...     savemat(f"{root}/train_32x32.mat", images)
        ...     load(root, "train"), load(root, "train").labels
        (ArrayImages('svhn', split='train', 5 images of 32×32×3), tensor([1, 2, 3, 4, 5]))
    """
    pixels, labels = _read(find(root, split), as_max_pixels(max_pixels))
    return ArrayImages(np.ascontiguousarray(pixels), labels=labels, name="svhn", split=split)


def paper_split(
    root: str | PathLike[str],
    *,
    extra: bool = True,
    num_train: int = _PAPER_TRAIN,
    max_pixels: int = MAX_PIXELS,
) -> tuple[ArrayImages, ArrayImages]:
    """Training and validation images as in section 4.2 of the paper.

    The first 50,000 train images and all extra ones are for training, 581,131 in total; the other
    23,257 train images are for validation. With the extra images this takes 3.5 GB at its peak and
    1.9 GB afterwards; without, half a GB.

    Args:
        root: As for :func:`load`.
        extra: Whether to use the extra images; without, their file may be absent.
        num_train: How many train images are for training.
        max_pixels: As for :func:`load`.

    Example:
        >>> import tempfile
        >>> from scipy.io import savemat
        >>> images = {"X": np.zeros((32, 32, 3, 5), np.uint8), "y": np.arange(1, 6, dtype=np.uint8)}
        >>> with tempfile.TemporaryDirectory() as root:
        ...     savemat(f"{root}/train_32x32.mat", images)
        ...     train, valid = paper_split(root, extra=False, num_train=3)
        >>> len(train), len(valid)
        (3, 2)
    """
    max_pixels = as_max_pixels(max_pixels)
    train_file = find(root, "train")
    if extra:
        try:
            extra_file = find(root, "extra")
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; extra=False does without it") from None
        num_extra = _count(extra_file)
    else:
        extra_file, num_extra = None, 0
    num_all = _count(train_file)
    if not 0 < num_train < num_all:
        raise ValueError(
            f"num_train must lie between 1 and {num_all - 1}, so that some of the {num_all} images "
            f"in {train_file} are left for validation, got {num_train}"
        )
    # Each file is turned into place from its own memory layout: there is no third copy.
    check_room("the images of SVHN", (num_train + num_extra) * _SIDE * _SIDE * _CHANNELS)
    together = np.empty((num_train + num_extra, _SIDE, _SIDE, _CHANNELS), dtype=np.uint8)
    pixels, digits = _read(train_file, max_pixels)
    together[:num_train] = pixels[:num_train]
    valid = ArrayImages(
        np.ascontiguousarray(pixels[num_train:]),
        labels=digits[num_train:],
        name="svhn",
        split="paper-valid",
    )
    labels = digits[:num_train]
    del pixels
    if extra_file is not None:
        together[num_train:], more = _read(extra_file, max_pixels)
        labels = np.concatenate([labels, more])
    return ArrayImages(together, labels=labels, name="svhn", split="paper-train"), valid


def find(root: str | PathLike[str], split: str) -> Path:
    """The file of a split; raises where there is none.

    Args:
        root: The folder of the files; see :func:`load`.
        split: ``"train"``, ``"extra"`` or ``"test"``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     Path(root, "test_32x32.mat").touch()
        ...     find(root, "test").name
        'test_32x32.mat'
    """
    if split not in get_args(Split):
        raise ValueError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"root must be the folder of SVHN's .mat files, but {root} is none")
    path = root / f"{split}_32x32.mat"
    if not path.is_file():
        raise FileNotFoundError(
            f"the {split} images are not in root={root}; looked for {path.name}"
        )
    return path


def _count(path: Path) -> int:
    """The number of images, from the header of the array."""
    x = matlab.variables(path, ["X"]).get("X")
    return _checked_shape(None if x is None else x.shape, path)[3]


def _read(
    path: Path, max_pixels: int
) -> tuple[UInt8[np.ndarray, "images 32 32 3"], Int[np.ndarray, " images"]]:
    """Pixels, as a view of MATLAB's layout, and digits."""
    found = matlab.variables(path, ["X", "y"])
    x, y = found.get("X"), found.get("y")
    shape = _checked_shape(None if x is None else x.shape, path)
    if x is None or x.kind != "uint8":
        raise ValueError(f"X in {path} must hold bytes (uint8), got {getattr(x, 'kind', None)}")
    if y is None or y.size != shape[3] or not y.is_numeric:
        got = "none" if y is None else f"{y.kind} of shape {list(y.shape)}"
        raise ValueError(f"y in {path} must hold a class for each of {shape[3]} images, got {got}")
    classes = matlab.read(path, y, max_pixels).reshape(-1)
    if classes.size and not 0 <= classes.min() <= classes.max() <= 10:
        raise ValueError(
            f"y in {path} must lie between 1 and 10, which is the digit 0, "
            f"got {classes.min()} to {classes.max()}"
        )
    pixels = matlab.read(path, x, max_pixels).reshape(shape, order="F")
    return pixels.transpose(3, 0, 1, 2), classes.astype(np.int64) % 10


def _checked_shape(shape: tuple[int, ...] | None, path: Path) -> tuple[int, int, int, int]:
    # MATLAB drops a last axis of one image.
    full = None if shape is None else (*shape, 1) if len(shape) == 3 else tuple(shape)
    if full is None or len(full) != 4 or full[:3] != (_SIDE, _SIDE, _CHANNELS):
        got = "no X" if shape is None else "×".join(map(str, shape))
        raise ValueError(f"{path} must hold an array X of {_EXPECTED}, got {got}")
    return _SIDE, _SIDE, _CHANNELS, int(full[3])
