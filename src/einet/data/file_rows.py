"""Rows of Parquet and Arrow files, of which only a bounded part is in memory at a time."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from einet._memory import fitting
from einet.data.arrow_files import ArrowFiles, Unit
from einet.data.batch import Batch, as_batch
from einet.data.joining import chosen
from einet.data.read_ahead import read_ahead
from einet.data.shuffling import cut_into, shuffled_into
from einet.data.spooling import spooled
from einet.data.streams import (
    MOST_FIRST_ROWS,
    Check,
    Rows,
    RowStream,
    Transform,
    check_transform,
    even_parts,
    transformed,
    transformed_digest,
)

__all__ = ["FileRows"]

# So many rows tell one transform from another.
_ROWS_TO_TELL = 16


class FileRows(RowStream):
    """Rows of a Parquet or Arrow file, or of a folder of them.

    Files are read by row groups, in an order drawn anew for every epoch, and rows are shuffled in a
    buffer of bounded size. A thread reads ahead. Every row is checked when it comes for the first
    time; files that change meanwhile are refused.

    Args:
        path: The file or folder.
        num_variables, num_classes: What rows and labels must fit; None for any number of columns.
        device: Where batches are wanted.
        labels, weights: Names of the columns that hold classes, and how often rows count.
        transform: What is done to ``x`` on the way.
        check: Called with parts of the rows and their name; raises if they are not fit for a model.
        name: What error messages call the rows.
        columns: The names of the variables; None for those of the files.
    """

    by_process = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        num_variables: int | None,
        num_classes: int,
        device: torch.device,
        *,
        labels: str | None = None,
        weights: str | None = None,
        transform: Transform | None = None,
        check: Check | None = None,
        name: str = "train",
        columns: tuple[str, ...] | None = None,
    ) -> None:
        check_transform(transform)
        self._files, self.device, self._name = ArrowFiles(path, name), device, name
        self._num_classes, self._transform, self._check = num_classes, transform, check
        self._beside = {what: c for what, c in (("labels", labels), ("weights", weights)) if c}
        names = list(self._files.schema.names)
        for what, column in self._beside.items():
            if column not in names:
                raise ValueError(
                    f"{what} must name a column of {name}, got {column!r}; there are "
                    f"{', '.join(map(repr, names[:8]))}{', …' if len(names) > 8 else ''}"
                )
        self._variables = [name for name in names if name not in self._beside.values()]
        if num_variables is not None and len(self._variables) != num_variables:
            raise ValueError(
                f"{name} must have {num_variables} columns (one for each variable), got "
                f"{len(self._variables)} in {os.fspath(path)!r}"
            )
        self.num_variables = len(self._variables)
        self._units: Sequence[Unit] = self._files.units
        self._processes = 1
        #: An epoch whose first rows have been read already.
        self._begun: _Begun | None = None
        #: Whether all rows have been looked at.
        self._checked = check is None
        # What is wrong with the types of columns is known before any training begins.
        self.columns = self._batch(self._files.no_rows(), columns).columns
        self.num_rows = self._files.num_rows

    def __len__(self) -> int:
        """The number of rows of all processes."""
        return self.num_rows

    def part(self, number: int, parts: int) -> FileRows:
        """The rows of one of several processes, as many as every other has, up to one.

        A mini-batch of ``batch_size`` rows is one of all processes together.
        """
        other = copy(self)
        begin, end = (-(-self.num_rows * at // parts) for at in (number, number + 1))
        units, at = [], 0
        for unit in self._units:
            start, stop = max(begin - at, 0), min(end - at, len(unit))
            at += len(unit)
            if start < stop:
                units.append(replace(unit, start=unit.start + start, stop=unit.start + stop))
        other._units, other._processes, other._begun = units, parts, None
        return other

    @property
    def _own_rows(self) -> int:
        return sum(map(len, self._units))

    # -- reading ---------------------------------------------------------------------------------

    def _batch(self, rows: Any, columns: tuple[str, ...] | None) -> Batch:
        beside = {what: rows.column(column) for what, column in self._beside.items()}
        if self._num_classes == 1:
            beside.pop("labels", None)
        return as_batch(
            rows.select(self._variables),
            self.num_variables,
            num_classes=self._num_classes,
            columns=columns,
            name=self._name,
            **beside,
        )

    def _parts(self, units: Sequence[Unit]) -> Iterator[Batch]:
        """Rows as they are read, in main memory; with nothing that does not count."""
        for unit in units:
            start = unit.first + unit.start
            for rows in self._files.read(unit):
                batch = self._batch(rows, self.columns)
                if batch.weights is not None:
                    counted = batch.weights > 0
                    if not bool(counted.all()):
                        # The number of rows was told: they stay, but nothing is known of them.
                        known = batch.mask & counted.unsqueeze(1)
                        batch = Batch(batch.x, known, batch.labels, batch.weights, batch.columns)
                if self._check is not None and self._checks_when_read:
                    self._check(batch, f"{self._name} ({unit.name}, from row {start})")
                start += len(batch)
                yield batch

    @property
    def _checks_when_read(self) -> bool:
        """Whether rows are checked by the thread that reads, which knows where they are from.

        What a transform makes of rows, and rows on a GPU, are checked when they are used.
        """
        return not self._checked and self._transform is None and self.device.type == "cpu"

    def _as_seen(self, part: Batch) -> Batch:
        if self.device.type == "cuda":
            pinned = part.map(lambda tensor: tensor.pin_memory())
            part = pinned.map(lambda tensor: tensor.to(self.device, non_blocking=True))
        part = transformed(part.to(self.device), self._transform)
        if self._check is not None and not self._checked and not self._checks_when_read:
            self._check(part, self._name)
        return part

    def _read(
        self, sizes: Sequence[int], generator: torch.Generator | None, shuffled: bool = True
    ) -> Iterator[Batch]:
        """All rows of this process in batches of so many rows.

        Args:
            sizes: How many rows each batch has.
            generator: What draws the order; None for that of the files.
            shuffled: Whether rows are shuffled, too, rather than row groups alone.
        """
        if not self._units:
            return
        self._files.check_unchanged()
        if generator is None:
            read = self._parts(self._units)
        else:
            order = self._order(generator)
            read = self._gone_on(order) or self._parts([self._units[at] for at in order])
        with closing(read_ahead(read)) as parts:
            if generator is None or not shuffled:
                batches = cut_into(parts, sizes)
            else:
                batches = shuffled_into(parts, sizes, self._room, generator)
            for batch in batches:
                yield self._as_seen(batch)
        self._checked = True

    def _order(self, generator: torch.Generator) -> list[int]:
        """An order of the row groups."""
        return torch.randperm(len(self._units), generator=generator).tolist()

    @property
    def _room(self) -> int:
        """How many rows are shuffled together."""
        return fitting("shuffled rows", 4 * self.num_variables)

    def _gone_on(self, order: list[int]) -> Iterator[Batch] | None:
        """Rows of an epoch that has begun, if it is in this order; none begins twice."""
        begun, self._begun = self._begun, None
        return begun.rows() if begun is not None and begun.order == order else None

    def __iter__(self) -> Iterator[Batch]:
        size = fitting("rows", 4 * self.num_variables, self.device)
        return self._read(_sizes(self._own_rows, size), None)

    def steps(self, batch_size: int) -> int:
        return -(-self._own_rows // self._share(batch_size))

    def _share(self, batch_size: int) -> int:
        return -(-batch_size // self._processes)

    def mini_batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """All rows in mini-batches equal up to one row; without a generator in their order."""
        return self._read(_sizes(self._own_rows, self._share(batch_size)), generator)

    def some(self, most: int, generator: torch.Generator) -> Batch:
        """At most so many rows, from the first row groups of a random order."""
        rows = self._own_rows
        if not rows:
            return Batch(torch.zeros(0, self.num_variables, device=self.device))
        sizes = [min(most, rows)]
        # A buffer to shuffle so large a batch in would hold several times as many rows.
        with closing(self._read(sizes, generator, shuffled=False)) as batches:  # type: ignore[type-var]
            batch = next(batches)
        # Where these are all, none is left to be looked at.
        self._checked = self._checked or len(batch) == rows
        return batch

    def first(self, most: int, generator: torch.Generator, epoch: torch.Generator) -> Batch:
        """Rows for initial leaves, drawn from those that fill the buffer of the first epoch.

        These are kept until the epoch begins, which reads them no more.
        """
        if not self._units:
            return self.some(most, generator)
        self._files.check_unchanged()
        order = self._order(epoch)
        parts = self._parts([self._units[at] for at in order])
        read: deque[Batch] = deque()
        count = 0
        while count < self._room and (part := next(parts, None)) is not None:
            read.append(part)
            count += len(part)
        self._begun = _Begun(order, read, parts)
        most = min(most, MOST_FIRST_ROWS)
        numbers = torch.randperm(count, generator=generator)[:most].sort().values
        return self._as_seen(chosen(read, numbers))

    def spooled(self) -> Rows:
        """The same rows where each can be asked for by its number: in a file without a name.

        That is as large as the rows in memory would be.
        """
        self._files.check_unchanged()
        batch = spooled(lambda: self._parts(self._units), self._name)
        check = None if self._checks_when_read else self._check
        return Rows(batch, self.device, self._transform, check, self._name)

    def checksum(self) -> str:
        """A digest of the files' names, sizes, beginnings and ends, with their statistics."""
        digest = hashlib.sha256(self._files.digest())
        digest.update(repr(sorted(self._beside.items())).encode())
        if self._transform is not None:
            with closing(self._parts(self._files.units)) as parts:  # type: ignore[type-var]
                few = next(islice(parts, 1))[:_ROWS_TO_TELL].to(self.device)
            digest.update(transformed_digest(transformed(few, self._transform).x))
        return digest.hexdigest()[:16]


@dataclass
class _Begun:
    """An epoch that has begun: the order of its row groups, what was read, and what is left."""

    order: list[int]
    read: deque[Batch]
    left: Iterator[Batch]

    def rows(self) -> Iterator[Batch]:
        while self.read:
            yield self.read.popleft()
        yield from self.left


def _sizes(rows: int, most: int) -> list[int]:
    return [part.stop - part.start for part in even_parts(rows, most)] if rows else []
