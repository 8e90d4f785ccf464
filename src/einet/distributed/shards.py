"""Rows by shards: every process learns from its part of each joint mini-batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from einet.data.batch import Batch
from einet.data.staging import pinned_copy
from einet.data.streams import Rows, RowStream, even_parts
from einet.distributed.stopping import Stopping
from einet.distributed.team import Team

__all__ = ["OwnRows", "Shard", "SharedRows", "shard_of"]


@dataclass
class Shard(Batch):
    """This process's part of a joint mini-batch of ``joint`` rows, from row ``start`` of it on."""

    joint: int = 0
    start: int = 0

    def hide(self, share: float, generator: torch.Generator) -> Batch:
        """As :meth:`Batch.hide`; all processes draw for the joint rows, and each takes its part."""
        shape = (self.joint, self.x.shape[1])
        draws = torch.rand(shape, generator=generator, device=self.x.device)
        kept = draws[self.start : self.start + len(self)] >= share
        plain = Batch(self.x, self.observed, self.labels, self.weights, self.columns)
        return replace(plain, observed=kept if self.observed is None else kept & self.observed)


def shard_of(rows: RowStream, team: Team, stopping: Stopping, labelled: bool) -> RowStream:
    """What this process learns from; the rows themselves where it is alone.

    Args:
        rows: Rows in memory, which all processes have; or a stream, which yields to each process
            rows of its own.
        team: The processes.
        stopping: How they agree to stop.
        labelled: Whether a batch without rows needs labels too.
    """
    if team.alone:
        return rows
    if isinstance(rows, Rows):
        return SharedRows(rows, team, stopping)
    return OwnRows(rows.part(team.rank, team.size), team, stopping, labelled)


class _Sharded(RowStream):
    """Rows of which every process sees a part. What they add up to is to be summed."""

    def __init__(self, rows: RowStream, team: Team, stopping: Stopping) -> None:
        self._rows, self._team, self._stopping = rows, team, stopping
        self.device, self.num_variables = rows.device, rows.num_variables

    @property
    def columns(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """The names of the variables."""
        return self._rows.columns

    @property
    def whole(self) -> RowStream:
        return self._rows

    def joint_(self, sums: list[Tensor]) -> None:
        self._team.sum_(sums)

    def first(self, most: int, generator: torch.Generator, epoch: torch.Generator) -> Batch:
        return self._rows.first(most, generator, epoch)

    def checksum(self) -> str:
        return self._rows.checksum()

    def _nothing(self, labelled: bool) -> Batch:
        """A batch of no rows, for those who have none while others have."""
        x = torch.zeros(0, self.num_variables, device=self.device)
        labels = torch.zeros(0, dtype=torch.long, device=self.device) if labelled else None
        return Batch(x, None, labels, None, self.columns)


class SharedRows(_Sharded):
    """Rows in memory that all processes have, and draw in the same order.

    Args:
        rows: The rows.
        team: The processes.
        stopping: How they agree to stop.

    Example:
        >>> rows, team = Rows(Batch(torch.arange(8.0).view(8, 1)), torch.device("cpu")), Team()
        >>> team.rank, team.size = 1, 2
        >>> shard = SharedRows(rows, team, Stopping(team))
        >>> [batch.x.flatten().tolist() for batch in shard.mini_batches(4, None)]
        [[2.0, 3.0], [6.0, 7.0]]
    """

    _rows: Rows

    def __init__(self, rows: Rows, team: Team, stopping: Stopping) -> None:
        super().__init__(rows, team, stopping)

    def __len__(self) -> int:
        """The number of rows of all processes."""
        return len(self._rows)

    def __iter__(self) -> Iterator[Batch]:
        own, size = self._team.share(len(self._rows)), self._rows.part_rows
        starts = range(own.start, own.stop, size)
        return self._rows.batches([slice(at, min(at + size, own.stop)) for at in starts])

    def steps(self, batch_size: int) -> int:
        return self._rows.steps(batch_size)

    def mini_batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """This process's part of every mini-batch that one process would have."""
        order = None
        if generator is not None:
            order = torch.randperm(len(self._rows), generator=generator)
            order = pinned_copy(order, self._rows.given.x.device)
        joint = even_parts(len(self._rows), batch_size)
        own = [self._team.share(part.stop - part.start, part.start) for part in joint]
        some = self._rows.batches([part for part in own if part.start < part.stop], order)
        for whole, part in zip(joint, own, strict=True):
            labelled = self._rows.given.labels is not None
            batch = next(some) if part.start < part.stop else self._nothing(labelled)
            within = (whole.stop - whole.start, part.start - whole.start)
            fields = (batch.x, batch.observed, batch.labels, batch.weights, batch.columns)
            yield Shard(*fields, None, *within)
            self._stopping.look()

    def some(self, most: int, generator: torch.Generator) -> Batch:
        return self._rows.some(most, generator)


class OwnRows(_Sharded):
    """Rows that every process has for itself: its loader yields its shard.

    Mini-batches of the same number make up a joint one. A process whose rows have come to their
    end goes on with batches of no rows until all others are there too.

    Args:
        rows: The rows of this process.
        team: The processes.
        stopping: How they agree to stop.
        labelled: Whether a batch without rows needs labels too.
    """

    by_process = True

    def __init__(self, rows: RowStream, team: Team, stopping: Stopping, labelled: bool) -> None:
        super().__init__(rows, team, stopping)
        # Others may have rows; that one of them has is checked below.
        rows.may_be_empty = True
        self._labelled, self._named = labelled, False

    def __iter__(self) -> Iterator[Batch]:
        yield from self._rows

    def steps(self, batch_size: int) -> int | None:
        """The number of mini-batches of the process that has most; None where one cannot tell."""
        told = self._team.from_each(self._rows.steps(batch_size))
        return None if None in told else max(number for number in told if number is not None)

    def mini_batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        own = self._rows.mini_batches(batch_size, generator)
        batch, number = next(own, None), 0
        self._agree_on_columns()
        while self._stopping.look(wait=True, more=batch is not None):
            yield self._nothing(self._labelled) if batch is None else batch
            batch, number = next(own, None), number + 1
        if not number:
            raise ValueError("the loaders must yield at least one row, got none in any process")

    def _agree_on_columns(self) -> None:
        """Raise where loaders name their columns differently; those without rows take the names."""
        if self._named:
            return
        self._named = True
        told = self._team.from_each(self._rows.columns)
        names = next((columns for columns in told if columns is not None), None)
        for rank, columns in enumerate(told):
            if columns is not None and columns != names:
                raise ValueError(
                    "the loaders of all processes must yield the same columns in the same order, "
                    f"got {names!r:.200} and in process {rank} {columns!r:.200}"
                )
        self._rows.columns = names

    def some(self, most: int, generator: torch.Generator) -> Batch:
        """The first rows of this process, which may have none."""
        return self._rows.some(most, generator)
