"""Rows of a ``torch.utils.data.Dataset``, fetched when they are needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence, Sized
from contextlib import closing
from copy import copy
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, default_collate

from einet.data.batch import Batch
from einet.data.loader import LoaderRows
from einet.data.read_ahead import read_ahead
from einet.data.streams import Check, even_parts

__all__ = ["DatasetRows", "is_dataset", "is_iterable"]

# So many items tell one dataset from another.
_ITEMS_TO_TELL = 64
# Items that are fetched together where nobody asks for mini-batches.
_PART = 4096


def is_dataset(data: Any) -> bool:
    """Whether this is a dataset of torch whose items have numbers."""
    return isinstance(data, Dataset) and not isinstance(data, IterableDataset)


def is_iterable(data: Any) -> bool:
    """Whether this is a dataset of torch that yields its items in an order of its own."""
    return isinstance(data, IterableDataset)


class DatasetRows(LoaderRows):
    """Rows that a dataset gives one by one, by their numbers.

    An item is a row, a pair of a row and its label, or a dictionary, as in
    :class:`~einet.data.loader.LoaderRows`; torch puts them together to batches. A thread fetches
    ahead.

    Args:
        dataset: What gives the rows; it has a length.
        num_variables, num_classes: What rows and labels must fit.
        device: Where batches are wanted.
        check: Called with every batch and its name; raises if its rows are not fit for a model.
        name: What error messages call the rows.
        columns: The names of the variables, if they have some.
    """

    by_process = True

    def __init__(
        self,
        dataset: Any,
        num_variables: int,
        num_classes: int,
        device: torch.device,
        check: Check | None = None,
        name: str = "train",
        columns: tuple[str, ...] | None = None,
    ) -> None:
        if not isinstance(dataset, Sized):
            raise TypeError(
                f"{name} must be a dataset with a length, or an IterableDataset, got "
                f"{type(dataset).__name__}"
            )
        if not len(dataset):
            raise ValueError(f"{name} must have at least one row, got none")
        super().__init__((), num_variables, num_classes, device, check, name, columns)
        self.num_rows = len(dataset)
        self._dataset: Any = dataset
        self._share = (0, 1)

    def __len__(self) -> int:
        """The number of rows of all processes."""
        return self.num_rows

    def part(self, number: int, parts: int) -> DatasetRows:
        """What one of several processes takes of every joint mini-batch."""
        other = copy(self)
        other._share = (number, parts)
        return other

    def _own(self, joint: slice) -> slice:
        number, parts = self._share
        rows = joint.stop - joint.start
        begin, end = (joint.start + -(-rows * at // parts) for at in (number, number + 1))
        return slice(begin, end)

    def _fetch(self, numbers: Sequence[int]) -> Any:
        many = getattr(self._dataset, "__getitems__", None)
        items = many(list(numbers)) if many else [self._dataset[number] for number in numbers]
        return default_collate(items)

    def _batches(self, cuts: list[slice], order: list[int]) -> Iterator[Batch]:
        own = [cut for cut in map(self._own, cuts) if cut.start < cut.stop]
        with closing(read_ahead(self._fetch(order[cut]) for cut in own)) as batches:
            for number, given in enumerate(batches):
                batch = self._batch(given, f"{self._name}: batch {number}")
                if len(batch) != own[number].stop - own[number].start:
                    raise ValueError(
                        f"{self._name}: items must be one row each, got {len(batch)} rows from "
                        f"{own[number].stop - own[number].start} items"
                    )
                yield batch

    def __iter__(self) -> Iterator[Batch]:
        return self._batches(even_parts(self.num_rows, _PART), list(range(self.num_rows)))

    def steps(self, batch_size: int) -> int:
        return -(-self.num_rows // batch_size)

    def mini_batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """All rows in mini-batches equal up to one row; without a generator in their order."""
        order = list(range(self.num_rows))
        if generator is not None:
            order = torch.randperm(self.num_rows, generator=generator).tolist()
        return self._batches(even_parts(self.num_rows, batch_size), order)

    def some(self, most: int, generator: torch.Generator) -> Batch:
        """At most so many rows, drawn at random."""
        order = torch.randperm(self.num_rows, generator=generator)[:most].tolist()
        return self._batch(self._fetch(order), self._name)

    def checksum(self) -> str:
        """A digest of the number of items and of what some of them hold."""
        digest = hashlib.sha256(f"{type(self._dataset).__name__}:{self.num_rows}".encode())
        last = self.num_rows - 1
        numbers = torch.linspace(0, last, min(_ITEMS_TO_TELL, self.num_rows)).long().tolist()
        batch = self._batch(self._fetch(numbers), self._name)
        for tensor in (batch.x, batch.observed, batch.labels, batch.weights):
            digest.update(repr(None if tensor is None else tensor.dtype).encode())
            if tensor is not None:
                digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]
