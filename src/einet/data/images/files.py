"""Images that are decoded when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from einet._memory import check_room
from einet.data.images.base import Images, RowIndex, as_rows
from einet.data.images.framing import Framing
from einet.data.images.limits import ImageError, file_bytes
from einet.data.images.sources import FileSource

__all__ = ["ImageFiles"]

# More threads than this find no work while one of them holds the interpreter.
_MOST_WORKERS = 8
# How many images a thread decodes before it asks for more.
_AT_ONCE = 16


class ImageFiles(Images):
    """Images in files, decoded when they are asked for; final.

    Only the rows of one request are in memory, unless ``keep`` is set. The first image is decoded
    at once, so that a framing that does not fit is found early. A file that is damaged or has the
    wrong size raises :class:`ImageError` when its turn comes.

    Args:
        source: The files.
        framing: What is made of each.
        workers: Threads that decode; by default one for each processor, at most 8.
        keep: Whether to decode all images into one array on first use, and keep that.
        labels, name, split: As in :class:`Images`.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> from einet.data.images import folder
        >>> with tempfile.TemporaryDirectory() as root:
        ...     for name in ("cat", "dog"):
        ...         Image.new("RGB", (64, 48), "brown").save(f"{root}/{name}.png")
        ...     images = folder.load(root, size=8)
        ...     images.image_shape, images.names, images[:1].shape  # the first is decoded here
        ((8, 8, 3), ['cat.png', 'dog.png'], torch.Size([1, 192]))
    """

    def __init__(
        self,
        source: FileSource,
        framing: Framing,
        *,
        workers: int | None = None,
        keep: bool = False,
        labels: Any = None,
        name: str = "images",
        split: str | None = None,
    ) -> None:
        if workers is None:
            workers = min(_MOST_WORKERS, os.cpu_count() or 1)
        if isinstance(workers, bool) or workers < 1:
            raise ValueError(f"workers must be a whole number of at least 1, got {workers!r}")
        if not len(source):
            raise ValueError("source must have at least one image, got none")
        self._source, self._framing, self._workers = source, framing, workers
        self._keep = keep
        self._kept: UInt8[np.ndarray, "rows variables"] | None = None
        height, width, channels = self._framed(0).shape
        self._first = source.describe(0)
        super().__init__(
            (height, width, channels), len(source), labels=labels, name=name, split=split
        )

    @property
    def names(self) -> Sequence[str]:
        """The files within their folder or archive."""
        return self._source.names

    def read(
        self, rows: slice | Int[np.ndarray, " chosen"]
    ) -> UInt8[np.ndarray, "chosen variables"]:
        """Some rows, decoded now, or once for all with ``keep``."""
        if self._keep and self._kept is None:
            self._kept = self._decoded(range(len(self)))
        if self._kept is not None:
            return self._kept[rows]
        return self._decoded(range(len(self))[rows] if isinstance(rows, slice) else rows.tolist())

    def take(self, rows: RowIndex) -> ImageFiles:
        """Some of the files, in the given order; what was kept of them is kept."""
        chosen = as_rows(rows, len(self))
        numbers = range(len(self))[chosen] if isinstance(chosen, slice) else chosen.tolist()
        part = copy(self)
        part._source = self._source.take(numbers)
        part._num_images = len(numbers)
        part.labels = self.labels_of(chosen)
        part._kept = None if self._kept is None else self._kept[chosen]
        return part

    def _decoded(self, numbers: Sequence[int]) -> UInt8[np.ndarray, "chosen variables"]:
        check_room(f"{len(numbers)} images of {self.name}", len(numbers) * self.num_variables)
        out = np.empty((len(numbers), *self.image_shape), dtype=np.uint8)

        def decode(start: int) -> None:
            for place in range(start, min(start + _AT_ONCE, len(numbers))):
                out[place] = self._pixels(numbers[place])

        starts = range(0, len(numbers), _AT_ONCE)
        if self._workers == 1 or len(starts) < 2:
            for start in starts:
                decode(start)
        else:
            with ThreadPoolExecutor(min(self._workers, len(starts))) as pool:
                for _ in pool.map(decode, starts):
                    pass
        return out.reshape(len(numbers), self.num_variables)

    def _pixels(self, number: int) -> UInt8[np.ndarray, "height width channels"]:
        pixels = self._framed(number)
        if pixels.shape != self.image_shape:
            name, (height, width, _) = self._source.describe(number), pixels.shape
            raise ImageError(
                f"{name} is {height}×{width} pixels (height×width), but {self._first} is "
                f"{self.image_shape[0]}×{self.image_shape[1]}; give size or crop, so that all "
                "images get the same size"
            )
        return pixels

    def _framed(self, number: int) -> UInt8[np.ndarray, "height width channels"]:
        content = self._source.read(number, file_bytes(self._framing.max_pixels))
        return self._framing(content, self._source.describe(number))
