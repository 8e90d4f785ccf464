"""What all sets of images have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

__all__ = ["Images", "RowIndex", "as_rows"]

#: Which rows: a slice, their numbers, or a mask of all rows.
RowIndex: TypeAlias = slice | Sequence[int] | np.ndarray | Tensor

# Whoever goes through images one by one gets them from so many that are read at once.
_READ_AHEAD = 64


class Images(ABC):
    """Images of one size, as rows of bytes in the order of variables that structures use.

    A row is an array ``(height, width, channels)`` flattened in C order: ``x.view(-1,
    *images.image_shape)`` are pictures again, and ``einet.poon_domingos(images.grid, delta,
    channels=images.channels)`` is a structure for them. numpy takes a set as the array ``[rows,
    variables]`` of all its bytes, so every function of this package that takes data takes it, and
    no copy in floating point is ever made of the whole: ``einet.fit(model, images)``.

    Memory is bounded by what is asked for. ``images[:100]`` is a tensor of these rows,
    :meth:`batches` goes through all of them, :meth:`take` is a smaller set that has read nothing
    yet.

    A new kind of set derives from this class and gives :meth:`read` and :meth:`take`.

    Args:
        image_shape: Height, width and channels of every image. (There is no ``shape``: numpy
            would take it for that of the rows.)
        num_images: How many there are.
        labels: The class of each image, or a function that reads them when they are asked for.
        name: The name of the set.
        split: The name of the part of it.

    Example:
        >>> from einet.data.images import ArrayImages, Images
        >>> class Plain(Images):  # image n is as bright as its number
        ...     def read(self, rows):
        ...         grey = np.arange(len(self), dtype=np.uint8)[rows]
        ...         return np.repeat(grey[:, None], self.num_variables, 1)
        ...
        ...     def take(self, rows):
        ...         return ArrayImages(self[rows].view(-1, *self.image_shape).numpy())
        >>> images = Plain((2, 3, 1), num_images=100)
        >>> images, images[7]
        (Plain('images', 100 images of 2×3×1), tensor([7, 7, 7, 7, 7, 7], dtype=torch.uint8))
        >>> [len(batch) for batch in images.batches(40)], images.take([3, 5])
        ([40, 40, 20], ArrayImages('images', 2 images of 2×3×1))
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_images: int,
        *,
        labels: Any = None,
        name: str = "images",
        split: str | None = None,
    ) -> None:
        self.image_shape = image_shape
        self.name, self.split = name, split
        self._num_images = num_images
        self.labels = labels

    @abstractmethod
    def read(
        self, rows: slice | Int[np.ndarray, " chosen"]
    ) -> UInt8[np.ndarray, "chosen variables"]:
        """The bytes of some rows, whose numbers are known to be valid.

        Args:
            rows: A slice, or their numbers.
        """

    @abstractmethod
    def take(self, rows: RowIndex) -> Images:
        """A set of some of these images, in the given order.

        Args:
            rows: A slice, their numbers, or a mask of all images.
        """

    @property
    def labels(self) -> Int[Tensor, " rows"] | None:
        """The class of each image, None where a set has no classes.

        Labels that lie in a file of their own are read when they are first asked for: raises what
        reading it raises, such as ``FileNotFoundError`` where there is no such file.

        Example:
            >>> from einet.data.images import ArrayImages
            >>> images = ArrayImages(np.zeros((3, 8, 8), dtype=np.uint8), labels=[7, 1, 7])
            >>> images.labels
            tensor([7, 1, 7])
        """
        if callable(self._labels):
            self._labels = _as_labels(self._labels(), len(self))
        return self._labels

    @labels.setter
    def labels(self, labels: Any) -> None:
        later = labels is None or callable(labels)
        self._labels: Any = labels if later else _as_labels(labels, len(self))

    def labels_of(
        self, rows: slice | Int[np.ndarray, " chosen"]
    ) -> Int[Tensor, " chosen"] | Callable[[], Tensor] | None:
        """What :meth:`take` gives a smaller set for its ``labels``; reads nothing.

        Args:
            rows: A slice, or their numbers.

        Example:
            >>> from einet.data.images import ArrayImages
            >>> images = ArrayImages(np.zeros((3, 8, 8), dtype=np.uint8), labels=[7, 1, 7])
            >>> images.labels_of(slice(0, 2))
            tensor([7, 1])
        """
        if callable(self._labels):
            return partial(_read_some, self._labels, rows)
        return None if self._labels is None else self._labels[rows]

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width.

        Example:
            >>> from einet.data.images import ArrayImages
            >>> ArrayImages(np.zeros((3, 8, 6), dtype=np.uint8)).grid
            (8, 6)
        """
        return self.image_shape[:2]

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for colours.

        Example:
            >>> from einet.data.images import ArrayImages
            >>> ArrayImages(np.zeros((3, 8, 6, 3), dtype=np.uint8)).channels
            3
        """
        return self.image_shape[2]

    @property
    def num_variables(self) -> int:
        """The numbers of an image: height × width × channels.

        Example:
            >>> from einet.data.images import ArrayImages
            >>> ArrayImages(np.zeros((3, 8, 6, 3), dtype=np.uint8)).num_variables
            144
        """
        return math.prod(self.image_shape)

    def __len__(self) -> int:
        return self._num_images

    def __getitem__(self, rows: int | RowIndex) -> UInt8[Tensor, "*chosen variables"]:
        """Some rows as a tensor; with one number, that row."""
        if isinstance(rows, int | np.integer):
            return torch.from_numpy(self.read(as_rows([int(rows)], len(self))))[0]
        return torch.from_numpy(self.read(as_rows(rows, len(self))))

    def __iter__(self) -> Iterator[UInt8[Tensor, " variables"]]:
        """Row by row."""
        return (row for part in self.batches(_READ_AHEAD) for row in part)

    def batches(
        self, size: int, order: RowIndex | None = None
    ) -> Iterator[UInt8[Tensor, "batch variables"]]:
        """Tensors of ``size`` rows, in the given order or as they come; the last may have less.

        Args:
            size: The rows of a batch.
            order: Which rows, in what order; all of them by default.

        Example:
            >>> from einet.data.images import ArrayImages
            >>> images = ArrayImages(np.zeros((10, 8, 8), dtype=np.uint8))
            >>> [len(batch) for batch in images.batches(4)]
            [4, 4, 2]
        """
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"size must be a whole number of at least 1, got {size!r}")
        source = self if order is None else self.take(order)
        return (source[start : start + size] for start in range(0, len(source), size))

    def numpy(self) -> UInt8[np.ndarray, "rows variables"]:
        """All rows as one array.

        Example:
            >>> from einet.data.images import ArrayImages
            >>> ArrayImages(np.zeros((10, 8, 8), dtype=np.uint8)).numpy().shape
            (10, 64)
        """
        return self.read(slice(0, len(self)))

    def tensor(self) -> UInt8[Tensor, "rows variables"]:
        """All rows as one tensor.

        Example:
            >>> from einet.data.images import ArrayImages
            >>> ArrayImages(np.zeros((10, 8, 8), dtype=np.uint8)).tensor().shape
            torch.Size([10, 64])
        """
        return torch.from_numpy(self.numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is None or np.dtype(dtype) == array.dtype:
            return array.copy() if copy else array
        if copy is False:
            raise ValueError(f"images are kept as uint8; {np.dtype(dtype)} would be a copy")
        return array.astype(dtype)

    def __repr__(self) -> str:
        split = "" if self.split is None else f"split={self.split!r}, "
        shape = "×".join(map(str, self.image_shape))
        return f"{type(self).__name__}({self.name!r}, {split}{len(self)} images of {shape})"


def _as_labels(labels: Any, num_images: int) -> Int[Tensor, " rows"]:
    """Labels as a tensor, checked to be one for each image."""
    result = torch.as_tensor(labels).long()
    if result.shape != (num_images,):
        raise ValueError(
            f"labels must have shape [{num_images}], one for each image, got {list(result.shape)}"
        )
    return result


def _read_some(
    read: Callable[[], Any], rows: slice | Int[np.ndarray, " chosen"]
) -> Int[Tensor, " chosen"]:
    """The labels of some rows; a function of the module, so that other processes can be sent it."""
    return torch.as_tensor(read()).long()[rows]


def as_rows(rows: RowIndex, length: int) -> slice | Int[np.ndarray, " chosen"]:
    """Check which rows are meant; a slice stays one, so that it need not copy.

    Example:
        >>> as_rows([0, -1], length=5), as_rows(slice(-2, None), length=5)
        (array([0, 4]), slice(3, 5, 1))
    """
    if isinstance(rows, slice):
        start, stop, step = rows.indices(length)
        # torch knows no array that runs backwards.
        return slice(start, stop, step) if step > 0 else np.arange(start, stop, step)
    numbers = np.asarray(rows.cpu() if isinstance(rows, Tensor) else rows)
    if numbers.dtype == bool and numbers.shape == (length,):
        return np.flatnonzero(numbers)
    if numbers.shape == (0,):
        return np.empty(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise TypeError(
            f"rows must be a slice, a list of whole numbers or a mask of {length} rows, "
            f"got {type(rows).__name__} of {numbers.dtype} and shape {list(numbers.shape)}"
        )
    numbers = numbers.astype(np.int64)
    outside = numbers[(numbers < -length) | (numbers >= length)]
    if outside.size:
        raise IndexError(f"rows must lie below {length}, the number of images, got {outside[0]}")
    return np.where(numbers < 0, numbers + length, numbers)
