"""What training can be given: rows in memory, in files, and from datasets and loaders of torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from einet._memory import fitting
from einet.data.batch import Batch
from einet.data.dataset_rows import DatasetRows, is_dataset, is_iterable
from einet.data.file_rows import FileRows
from einet.data.loader import LoaderRows, is_loader
from einet.data.streams import Check, RowStream, Transform

__all__ = ["as_stream", "has_own_labels", "in_memory", "is_path", "sample_of"]


def is_path(data: Any) -> bool:
    """Whether this is where data lie, rather than data."""
    return isinstance(data, str | os.PathLike)


def has_own_labels(data: Any) -> bool:
    """Whether labels of these rows come with them, if there are any."""
    return is_loader(data) or is_dataset(data) or is_iterable(data)


def in_memory(data: Any, name: str) -> Any:
    """Rows that can be asked for by their numbers: a ``.npy`` file is mapped, others stay.

    Only those parts of a mapped file are read that are asked for, and the system forgets them
    when it needs the memory.
    """
    if not is_path(data) or Path(data).suffix.lower() != ".npy":
        return data
    if not Path(data).is_file():
        raise FileNotFoundError(f"{name}: there is no file {os.fspath(data)!r}")
    try:
        return np.load(data, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{name} cannot be read from {os.fspath(data)!r}: {error}") from error


def as_stream(
    data: Any,
    num_variables: int,
    num_classes: int,
    device: torch.device,
    *,
    observed: Any = None,
    labels: Any = None,
    weights: Any = None,
    transform: Transform | None = None,
    check: Check | None = None,
    name: str = "train",
    columns: tuple[str, ...] | None = None,
    batch_size: int,
) -> RowStream | None:
    """Rows that come by themselves, from files, datasets or loaders; None for rows in memory.

    Args:
        data: What was given.
        num_variables, num_classes: What rows and labels must fit.
        device: Where batches are wanted.
        observed, labels, weights: What was given beside the rows. Those of files are the names of
            columns; loaders and datasets hold their own.
        transform: What is done to rows of files on the way.
        check: Raises if rows are not fit for a model.
        name: What error messages call the rows.
        columns: The names of the variables, where they are known.
        batch_size: How many rows of an IterableDataset make up a batch.
    """
    prefix = "valid_" if name == "valid" else ""
    beside = {"observed": observed, "labels": labels, "weights": weights}
    if is_path(data):
        return _of_files(
            data, num_variables, num_classes, device, beside, transform, check, name, columns
        )
    if not has_own_labels(data):
        return None
    kind = "loader" if is_loader(data) else "dataset"
    for what, value in {**beside, "transform": transform}.items():
        if value is not None:
            raise ValueError(
                f"{prefix}{what} is given, but {name} is a {kind}; let its batches hold it"
            )
    given = (num_variables, num_classes, device, check, name, columns)
    if is_dataset(data):
        return DatasetRows(data, *given)
    loader = data if is_loader(data) else DataLoader(data, batch_size=batch_size)
    return LoaderRows(loader, *given)


def _of_files(
    path: Any,
    num_variables: int | None,
    num_classes: int,
    device: torch.device,
    beside: dict[str, Any],
    transform: Transform | None,
    check: Check | None,
    name: str,
    columns: tuple[str, ...] | None,
) -> FileRows:
    prefix = "valid_" if name == "valid" else ""
    if beside["observed"] is not None:
        raise ValueError(f"{prefix}observed is given, but {name} is a path; nulls are missing")
    for what in ("labels", "weights"):
        if beside[what] is not None and not isinstance(beside[what], str):
            raise TypeError(
                f"{prefix}{what} must be the name of a column where {name} is a path, got "
                f"{type(beside[what]).__name__}"
            )
    return FileRows(
        path, num_variables, num_classes, device, labels=beside["labels"],
        weights=beside["weights"], transform=transform, check=check, name=name, columns=columns,
    )  # fmt: skip


def sample_of(data: Any, name: str, seed: int, weights: Any = None) -> tuple[Any, Any]:
    """Rows to learn a structure from, and their weights; of a path a bounded sample.

    Args:
        data: Whatever was given.
        name: What errors call it.
        seed: Seed of the sample.
        weights: Weights of the rows, or the name of their column in files.
    """
    data = in_memory(data, name)
    if not is_path(data):
        return data, weights
    beside = {"observed": None, "labels": None, "weights": weights}
    rows = _of_files(data, None, 1, torch.device("cpu"), beside, None, None, name, None)
    most = fitting("structure rows", 4 * rows.num_variables)
    batch: Batch = rows.some(most, torch.Generator().manual_seed(seed))
    return batch, None
