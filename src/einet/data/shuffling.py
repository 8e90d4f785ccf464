"""Mini-batches from a stream of rows, in its order or shuffled in a bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from einet.data.batch import Batch
from einet.data.joining import joined
from einet.data.slots import Slots

__all__ = ["cut_into", "shuffled_into"]


def cut_into(parts: Iterable[Batch], sizes: Sequence[int]) -> Iterator[Batch]:
    """Batches of so many rows each, in the order of the parts.

    Args:
        parts: The rows, in parts of any size.
        sizes: How many rows each batch has; together as many as the parts have.

    Example:
        >>> parts = [Batch(torch.arange(3.0).view(3, 1)), Batch(torch.arange(3.0, 5).view(2, 1))]
        >>> [batch.x.flatten().tolist() for batch in cut_into(parts, [2, 2, 1])]
        [[0.0, 1.0], [2.0, 3.0], [4.0]]
    """
    more, held = iter(parts), _Held()
    for size in sizes:
        while held.rows < size and (part := next(more, None)) is not None:
            held.add(part)
        yield held.take(size)


def shuffled_into(
    parts: Iterable[Batch], sizes: Sequence[int], room: int, generator: torch.Generator
) -> Iterator[Batch]:
    """Batches of so many rows each, drawn from a buffer of about ``room`` rows.

    The buffer is filled, its rows are put in a random order, and half of them are handed out before
    it is filled again. So a row may come at any time after it was read, and a row that was read
    late never comes first: parts should themselves come in a random order.

    Args:
        parts: The rows, in parts of any size.
        sizes: How many rows each batch has; together as many as the parts have.
        room: How many rows the buffer holds, up to one part more; at least four batches.
        generator: What draws the order.

    Example:
        >>> parts = [Batch(torch.arange(6.0).view(6, 1))]
        >>> some = shuffled_into(parts, [3, 3], 100, torch.Generator().manual_seed(0))
        >>> sorted(value for batch in some for value in batch.x.flatten().tolist())
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """
    room = max(room, 4 * max(sizes, default=1))
    more, held = iter(parts), Slots(min(sum(sizes), room))
    # How many rows may be handed out before the buffer is filled again.
    allowed, ended, last = 0, False, False
    for size in sizes:
        # Rows take the places of others as soon as these are handed out, so that whoever reads
        # need not wait; what is read meanwhile has its turn when the buffer is shuffled next.
        while not ended and held.rows < room:
            part = next(more, None)
            if part is None:
                ended = True
            else:
                held.add(part)
        if size > allowed and not last:
            held.shuffle(generator)
            allowed, last = held.rows if ended else held.rows // 2, ended
        yield held.take(size)
        allowed -= size


class _Held:
    """Rows that were read and have yet to be handed out, first in, first out."""

    def __init__(self) -> None:
        self._parts: list[Batch] = []
        self.rows = 0

    def add(self, part: Batch) -> None:
        if len(part):
            self._parts.append(part)
            self.rows += len(part)

    def take(self, size: int) -> Batch:
        """The first rows."""
        if size > self.rows:
            raise ValueError(f"{size - self.rows} rows fewer were read than were counted before")
        taken, missing = [], size
        while missing:
            part = self._parts[0]
            taken.append(part[:missing])
            missing -= len(taken[-1])
            rest = part[len(taken[-1]) :]
            self._parts[0] = rest
            if not len(rest):
                del self._parts[0]
        self.rows -= size
        return joined(taken)
