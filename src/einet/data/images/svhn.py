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
from types import ModuleType
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int, UInt8

from einet._checks import missing_package
from einet.data.images.array import ArrayImages

__all__ = ["Split", "find", "load", "paper_split"]

Split = Literal["train", "extra", "test"]

_SIDE, _CHANNELS = 32, 3
_EXPECTED = "32×32×3×N"
#: The paper trains on so many images of the train file, and on all extra ones.
_PAPER_TRAIN = 50_000


def load(root: str | PathLike[str], split: str) -> ArrayImages:
    """The images of one file, with their digits as labels.

    Args:
        root: The folder that holds ``train_32x32.mat``, ``extra_32x32.mat`` and
            ``test_32x32.mat``; those that are not asked for may be absent.
        split: ``"train"``, ``"extra"`` or ``"test"``.
    """
    pixels, labels = _read(find(root, split))
    return ArrayImages(np.ascontiguousarray(pixels), labels=labels, name="svhn", split=split)


def paper_split(
    root: str | PathLike[str], *, extra: bool = True, num_train: int = _PAPER_TRAIN
) -> tuple[ArrayImages, ArrayImages]:
    """Training and validation images as in section 4.2 of the paper.

    The first 50,000 train images and all extra ones are for training, 581,131 in total; the other
    23,257 train images are for validation. With the extra images this takes 3.5 GB at its peak and
    1.9 GB afterwards; without, half a GB.

    Args:
        root: As for :func:`load`.
        extra: Whether to use the extra images; without, their file may be absent.
        num_train: How many train images are for training.
    """
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
    together = np.empty((num_train + num_extra, _SIDE, _SIDE, _CHANNELS), dtype=np.uint8)
    pixels, digits = _read(train_file)
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
        together[num_train:], more = _read(extra_file)
        labels = np.concatenate([labels, more])
    return ArrayImages(together, labels=labels, name="svhn", split="paper-train"), valid


def find(root: str | PathLike[str], split: str) -> Path:
    """The file of a split; raises where there is none."""
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
    try:
        shapes = {name: shape for name, shape, _ in _matlab().whosmat(path)}
    except (MemoryError, ImportError):
        raise
    except Exception as error:
        raise _damaged(path, error) from error
    return _checked_shape(shapes.get("X"), path)[3]


def _read(
    path: Path,
) -> tuple[UInt8[np.ndarray, "images 32 32 3"], Int[np.ndarray, " images"]]:
    """Pixels, as a view of MATLAB's layout, and digits."""
    try:
        content = _matlab().loadmat(path, variable_names=["X", "y"])
    except (MemoryError, ImportError):
        raise
    except Exception as error:
        # scipy raises what its parser stumbles over, which can be anything.
        raise _damaged(path, error) from error
    x, y = content.get("X"), content.get("y")
    shape = _checked_shape(None if x is None else x.shape, path)
    if x is None or x.dtype != np.uint8:
        raise ValueError(f"X in {path} must hold bytes (uint8), got {getattr(x, 'dtype', None)}")
    if y is None or y.size != shape[3] or y.dtype.kind not in "iuf":
        got = "none" if y is None else f"{y.dtype} of shape {list(y.shape)}"
        raise ValueError(f"y in {path} must hold a class for each of {shape[3]} images, got {got}")
    classes = y.reshape(-1).astype(np.int64)
    if classes.size and not 0 <= classes.min() <= classes.max() <= 10:
        raise ValueError(
            f"y in {path} must lie between 1 and 10, which is the digit 0, "
            f"got {classes.min()} to {classes.max()}"
        )
    return x.reshape(shape, order="F").transpose(3, 0, 1, 2), classes % 10


def _checked_shape(shape: tuple[int, ...] | None, path: Path) -> tuple[int, int, int, int]:
    # MATLAB drops a last axis of one image.
    full = None if shape is None else (*shape, 1) if len(shape) == 3 else tuple(shape)
    if full is None or len(full) != 4 or full[:3] != (_SIDE, _SIDE, _CHANNELS):
        got = "no X" if shape is None else "×".join(map(str, shape))
        raise ValueError(f"{path} must hold an array X of {_EXPECTED}, got {got}")
    return _SIDE, _SIDE, _CHANNELS, int(full[3])


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is no intact MATLAB file (version 4 to 7): {error}")


def _matlab() -> ModuleType:
    try:
        import scipy.io
    except ImportError as error:
        raise missing_package("scipy", "reading SVHN's .mat files", "images") from error
    return scipy.io
