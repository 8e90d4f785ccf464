"""Checks of what clusters are asked to learn from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from jaxtyping import Int
from torch import Tensor

from einet.data.arrays import as_given
from einet.data.batch import as_labels
from einet.data.file_rows import FileRows
from einet.data.streams import Rows, RowStream
from einet.learning.checkpoint import Checkpoint

__all__ = ["digest", "given_clusters", "in_memory", "read_from"]


def in_memory(train: RowStream, valid: RowStream | None) -> tuple[Rows, Rows | None]:
    """Training and validation rows that can be asked for by their numbers, or raise.

    Clusters take theirs by numbers. Those of Parquet and Arrow files are laid down on the disk.
    """
    found = [_by_number("train", train), None if valid is None else _by_number("valid", valid)]
    return found[0], found[1]  # type: ignore[return-value]


def _by_number(name: str, rows: RowStream) -> Rows:
    if isinstance(rows, FileRows):
        return rows.spooled()
    if not isinstance(rows, Rows):
        raise TypeError(
            f"{name} must be rows in memory or a path for clusters, got a loader or a dataset"
        )
    return rows


def given_clusters(
    clusters: Any, num_clusters: int, rows: int, weights: Any
) -> Int[Tensor, " rows"]:
    """The clusters that a user gave, of the rows that count."""
    if weights is None:
        given = as_labels(clusters, rows, num_clusters, name="clusters").cpu()
    else:
        counted = as_given(weights, "weights").values.cpu() > 0
        given = as_labels(clusters, len(counted), num_clusters, name="clusters").cpu()[counted]
    if bool((given < 0).any()):
        raise ValueError("clusters must not be negative: every row needs one")
    return given


def digest(clusters: Int[Tensor, " rows"]) -> list[str]:
    """A few characters that tell clusters that were given from others."""
    return ["given", hashlib.sha256(clusters.numpy().tobytes()).hexdigest()[:16]]


def read_from(file: Checkpoint, checkpoint: Any, state: Any) -> Path | None:
    """The file that a state is from, for errors; only the first process knows it to the end."""
    if state is None:
        return None
    return file.good[-1] if file.good else Path(checkpoint)
