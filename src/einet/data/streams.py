"""Rows for training: kept as they were given, handed out in parts on a model's device."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._checks import shown
from einet._memory import fitting
from einet.data.batch import Batch
from einet.data.staging import Staging, pinned_copy

__all__ = [
    "MOST_FIRST_ROWS",
    "Check",
    "RowStream",
    "Rows",
    "Transform",
    "check_transform",
    "even_parts",
    "transformed",
    "transformed_digest",
]

#: From rows as they are kept to rows as the model sees them, such as ``lambda x: x / 255``.
Transform = Callable[[Tensor], Tensor]
#: Raises if rows are not fit for a model; called with some of them and their name.
Check = Callable[[Batch, str], None]

#: Rows beyond this add nothing to a column's location and scale worth their time.
MOST_FIRST_ROWS = 100_000
# So many rows tell one transform from another.
_ROWS_TO_TELL = 16


def even_parts(rows: int, most: int) -> list[slice]:
    """Cut rows into as few parts of at most ``most`` as there can be, equal up to one row.

    A last mini-batch of a few rows would undo what was learnt from those before it.

    Example:
        >>> [part.stop - part.start for part in even_parts(1001, 500)]
        [334, 334, 333]
    """
    count = -(-rows // most)
    ends = [-(-rows * number // count) for number in range(count + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]


def check_transform(transform: object) -> None:
    """Raise unless this is a function, or None."""
    if transform is not None and not callable(transform):
        raise TypeError(
            f"transform must be a function of a tensor of rows or None, got {shown(transform)}"
        )


def transformed(part: Batch, transform: Transform | None) -> Batch:
    """Rows with a transform applied to their values."""
    if transform is None:
        return part
    x = transform(part.x)
    if not isinstance(x, Tensor) or x.shape != part.x.shape:
        got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(
            f"transform must keep the shape of its rows, {list(part.x.shape)}, got {got}"
        )
    return replace(part, x=x.to(part.x.device))


def transformed_digest(x: Tensor) -> bytes:
    """What tells a transform from others: what it has made of some rows.

    It goes to few digits, which may differ between devices. Columns weigh differently, so that
    none can take the place of another.
    """
    seen = x.double().nan_to_num()
    columns = torch.linspace(1, 2, seen.shape[1]).to(seen)
    sums = torch.stack([seen.sum(1), (seen * columns).sum(1)], 1).flatten().tolist()
    return ",".join(f"{value:.5g}" for value in sums).encode()


class RowStream(ABC):
    """Rows for training, as a model sees them and on its device.

    Iterating gives all rows once, in parts that fit a bounded memory.
    """

    device: torch.device
    num_variables: int
    #: The names of the variables, where the rows came from tables that have them.
    columns: tuple[str, ...] | None = None
    #: Whether a stream may have no rows, because other processes have some.
    may_be_empty: bool = False
    #: Whether mini-batches depend on how many processes share the rows.
    by_process: bool = False

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]:
        """All rows, in parts."""

    def part(self, number: int, parts: int) -> RowStream:
        """The rows of one of several processes, where all of them are given the same rows.

        By default all: what a loader yields is each process's own.
        """
        return self

    @property
    def whole(self) -> RowStream:
        """All rows that this process knows of, where it learns from a part of them."""
        return self

    def joint_(self, sums: list[Tensor]) -> None:  # noqa: B027 (mostly there is nobody to ask)
        """Add to sums over these rows those of other processes, where these hold other rows."""

    @abstractmethod
    def steps(self, batch_size: int) -> int | None:
        """The number of mini-batches in an epoch; None where nobody knows before."""

    @abstractmethod
    def mini_batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """All rows in mini-batches much alike, in an order that the generator draws."""

    @abstractmethod
    def some(self, most: int, generator: torch.Generator) -> Batch:
        """At most so many rows, drawn at random."""

    def first(self, most: int, generator: torch.Generator, epoch: torch.Generator) -> Batch:
        """Rows that initial leaves are read off.

        Args:
            most: How many at most.
            generator: What draws them.
            epoch: What is going to draw the order of the first epoch. Rows that have to be read may
                be those that it begins with, so that they are read once for both.
        """
        return self.some(most, generator)

    @abstractmethod
    def checksum(self) -> str:
        """A few characters that tell these rows from others; for checkpoints."""


class Rows(RowStream):
    """Rows in memory, in the type they came in; parts are converted when they are needed.

    Args:
        batch: The rows, checked; :func:`~einet.data.as_batch` does that.
        device: Where parts are wanted. The rows are moved there too if they do not crowd it.
        transform: What is done to ``x`` on the way.
        check: Called once with every part and its name; raises if the rows are not fit for a model.
        name: What error messages call the rows.

    Example:
        >>> images = torch.tensor([[0, 255], [255, 255]], dtype=torch.uint8)
        >>> rows = Rows(Batch(images), torch.device("cpu"), lambda x: x / 255)
        >>> rows.mean
        tensor([0.5000, 1.0000], dtype=torch.float64)
        >>> [part.x for part in rows]
        [tensor([[0., 1.],
                 [1., 1.]])]
    """

    def __init__(
        self,
        batch: Batch,
        device: torch.device,
        transform: Transform | None = None,
        check: Check | None = None,
        name: str = "train",
    ) -> None:
        check_transform(transform)
        self.num_variables, self.device, self.columns = batch.x.shape[1], device, batch.columns
        self._transform, self._mean, self._complete = transform, None, False
        counted = None if batch.weights is None else batch.weights > 0
        if counted is None or bool(counted.all()):
            self._staging = Staging(batch, device)
            self._look(check, name)
            return
        if not bool(counted.any()):
            raise ValueError("weights must not be 0 throughout")
        # Rows of weight 0 are padding, whatever they hold; the others are checked by their numbers.
        hidden = replace(batch, observed=batch.mask & counted.unsqueeze(1))
        self._staging = Staging(hidden, device)
        self._look(check, name)
        self._staging = Staging(batch[counted], device)
        self._look(None, name)

    def _look(self, check: Check | None, name: str) -> None:
        """Look through all rows: whether they are fit for the model, and have no holes."""
        self._complete = False
        start, complete = 0, True
        for part in self:
            if check is not None:
                check(part, name if not start else f"{name}[{start}:]")
            complete = complete and (part.observed is None or bool(part.observed.all()))
            start += len(part)
        self._complete = complete

    def __len__(self) -> int:
        return len(self._staging.batch)

    @property
    def given(self) -> Batch:
        """All rows as they were given, wherever they lie; not yet :meth:`as_seen`."""
        return self._staging.batch

    @property
    def part_rows(self) -> int:
        """How many rows there are in a part."""
        return fitting("rows", 4 * self.num_variables, self.device)

    def as_seen(self, part: Batch) -> Batch:
        """Rows as they were given, turned into what the model sees."""
        part = transformed(part, self._transform)
        return replace(part, observed=None) if self._complete else part.scanned()

    def subset(self, index: Int[Tensor, " rows"], weights: Tensor | None = None) -> Rows:
        """Some of these rows, with weights of their own where given."""
        other = copy(self)
        chosen = self.given[pinned_copy(index, self.given.x.device)]
        if weights is not None:
            chosen = replace(chosen, weights=weights.to(chosen.x.device))
        other._staging, other._mean = Staging(chosen, self.device), None
        return other

    # -- parts of them -------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        return self.parts()

    def parts(self, order: Int[Tensor, " rows"] | None = None) -> Iterator[Batch]:
        """All rows, or those named, in parts."""
        count, size = len(self) if order is None else len(order), self.part_rows
        cuts = [slice(start, min(start + size, count)) for start in range(0, count, size)]
        return self.batches(cuts, order)

    def batches(
        self, cuts: list[slice], order: Int[Tensor, " rows"] | None = None
    ) -> Iterator[Batch]:
        """The rows of each cut, counted in the order given."""
        for part in self._staging.batches(cuts, order):
            yield self.as_seen(part)

    def steps(self, batch_size: int) -> int:
        """The number of mini-batches in an epoch."""
        return -(-len(self) // batch_size)

    def mini_batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """All rows in mini-batches equal up to one row; without a generator in their order."""
        order = None
        if generator is not None:
            order = torch.randperm(len(self), generator=generator)
            order = pinned_copy(order, self.given.x.device)
        return self.batches(even_parts(len(self), batch_size), order)

    def some(self, most: int, generator: torch.Generator) -> Batch:
        """At most so many rows, drawn at random, as the model sees them."""
        given = self.given
        if len(given) > most:
            chosen = torch.randperm(len(given), generator=generator)[:most]
            given = given[chosen.to(given.x.device)]
        return self.as_seen(given.to(self.device))

    # -- what is known of them -----------------------------------------------------------------

    @property
    def mean(self) -> Float[Tensor, " variables"]:
        """The mean of each column's known cells, 0 where there are none."""
        if self._mean is None:
            total = torch.zeros(self.num_variables, dtype=torch.float64, device=self.device)
            count = torch.zeros_like(total)
            for part in self:
                known = part.mask
                total += torch.where(known, part.x, 0).double().sum(0)
                count += known.sum(0)
            self._mean = total / count.clamp(min=1)
        return self._mean

    def centred(self, order: Int[Tensor, " rows"] | None = None) -> Iterator[Tensor]:
        """Parts in float32, less the columns' means; 0 where a cell is missing."""
        for part in self.parts(order):
            # One shift for all rows: it may be rounded, as long as the differences are not.
            kind = torch.float64 if part.x.dtype == torch.float64 else torch.float32
            x = (part.x.to(kind) - self.mean.to(kind)).float()
            yield x if part.observed is None else torch.where(part.observed, x, 0.0)

    def checksum(self) -> str:
        """A digest of all bytes that were given, and of what the transform makes of a few rows."""
        digest, given = hashlib.sha256(), self.given
        for tensor in (given.x, given.observed, given.labels, given.weights):
            digest.update(repr(None if tensor is None else (tensor.shape, tensor.dtype)).encode())
            if tensor is not None:
                for start in range(0, len(tensor), self.part_rows):
                    some = tensor[start : start + self.part_rows]
                    digest.update(some.cpu().contiguous().numpy().tobytes())
        if self._transform is not None:
            few = torch.linspace(0, len(given) - 1, _ROWS_TO_TELL).long().to(given.x.device)
            digest.update(transformed_digest(self.as_seen(given[few].to(self.device)).x))
        return digest.hexdigest()[:16]
