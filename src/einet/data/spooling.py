"""Rows of a stream laid down on the disk, to be asked for by their numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from einet.data.batch import Batch

__all__ = ["spooled"]


def spooled(read: Callable[[], Iterable[Batch]], name: str) -> Batch:
    """All rows of a stream as one batch that lies in temporary files, mapped into memory.

    The files have no names: the system frees them with the last tensor, or with the process.
    Labels and weights, a number for each row, are kept in memory.

    Args:
        read: Begins to read all rows, in parts in main memory.
        name: What errors call the rows.

    Example:
        >>> parts = [Batch(torch.zeros(2, 3)), Batch(torch.ones(1, 3))]
        >>> spooled(lambda: parts, "train").x.sum(1)
        tensor([0., 0., 3.])
    """
    dtype: torch.dtype | None = None
    while True:
        with tempfile.TemporaryFile() as values, tempfile.TemporaryFile() as masks:
            rows, width, masked = 0, 0, False
            beside: list[tuple[Tensor | None, Tensor | None]] = []
            columns = None
            for part in read():
                wanted = part.x.dtype if dtype is None else torch.promote_types(dtype, part.x.dtype)
                if rows and wanted != dtype:
                    # Whole numbers with holes in them, say, after some without: once more, as both.
                    rows = -1
                    dtype = wanted
                    break
                dtype = wanted
                _write(values, part.x.to(dtype), name)
                _write(masks, part.mask, name)
                masked = masked or part.observed is not None
                rows, width = rows + len(part), part.x.shape[1]
                columns = part.columns
                beside.append((part.labels, part.weights))
            if rows < 0:
                continue
            assert dtype is not None
            labels, weights = zip(*beside, strict=True)
            return Batch(
                _mapped(values, dtype, (rows, width)),
                _mapped(masks, torch.bool, (rows, width)) if masked else None,
                None if labels[0] is None else torch.cat(labels),
                None if weights[0] is None else torch.cat(weights),
                columns,
            )


def _write(file: Any, tensor: Tensor, name: str) -> None:
    # By a call that fails where there is no room: a page of a map would end the process.
    try:
        file.write(tensor.contiguous().numpy().tobytes())
    except OSError as error:
        raise OSError(
            error.errno,
            f"{name} has to be laid down as it is read, and {error.strerror} there; TMPDIR names "
            "another folder",
            tempfile.gettempdir(),
        ) from error


def _mapped(file: Any, dtype: torch.dtype, shape: tuple[int, int]) -> Tensor:
    file.flush()
    kind = torch.zeros((), dtype=dtype).numpy().dtype
    # Copied where it is written to, which nobody does; torch warns of what is read-only.
    return torch.from_numpy(np.memmap(file, kind, "c", shape=shape))
