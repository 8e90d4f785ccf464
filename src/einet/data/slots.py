"""A buffer of rows, in which new ones take the places of those that were handed out."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from einet.data.batch import Batch

__all__ = ["Slots"]


class Slots:
    """Rows in main memory, each in a slot of its own, handed out in a random order.

    Memory is taken once. Shuffling moves numbers of slots alone, and a row is copied twice: into
    its slot, and into the batch that it is handed out with.

    Args:
        most: About how many rows there will be at a time; with one part more they need no new
            memory.

    Example:
        >>> slots = Slots(4)
        >>> slots.add(Batch(torch.tensor([[1.0], [2.0], [3.0]])))
        >>> slots.shuffle(torch.Generator().manual_seed(0))
        >>> slots.take(2).x.flatten().tolist(), slots.rows
        ([3.0, 1.0], 1)
    """

    #: What a row has that came without it, while others did not.
    _ABSENT: ClassVar[dict[str, tuple[float, torch.dtype]]] = {
        "observed": (True, torch.bool),
        "labels": (-1, torch.int64),
        "weights": (1.0, torch.float64),
    }

    def __init__(self, most: int) -> None:
        self._most = most
        self._tensors: dict[str, Tensor] = {}
        self._columns: tuple[str, ...] | None = None
        #: Which tensors rows are handed out with: what came since the last shuffle is not seen yet.
        self._shown: list[str] = []
        #: Slots in the order in which they are handed out, then those that were filled since.
        self._order, self._since = torch.empty(0, dtype=torch.int64), []
        self._fresh, self._free, self._size = 0, torch.empty(0, dtype=torch.int64), 0
        #: How many rows there are.
        self.rows = 0

    def add(self, part: Batch) -> None:
        """Take rows in; they are handed out once all have been shuffled."""
        if not len(part):
            return
        given = {
            "x": part.x, "observed": part.observed, "labels": part.labels, "weights": part.weights,
        }  # fmt: skip
        self._columns = part.columns
        slots = self._slots_for(len(part))
        for name, tensor in given.items():
            if tensor is not None:
                self._prepare(name, tensor)
        for name, kept in self._tensors.items():
            tensor = given[name]
            if tensor is None:
                kept[slots] = self._ABSENT[name][0]
            elif isinstance(slots, slice):
                kept[slots] = tensor
            else:
                kept.index_copy_(0, slots, tensor.to(kept.dtype))
        if isinstance(slots, slice):
            slots = torch.arange(slots.start, slots.stop)
        self._since.append(slots)
        self.rows += len(part)

    def _slots_for(self, count: int) -> slice | Tensor:
        """Slots that nobody needs: such as never were used, while there are enough."""
        if not self._size:
            self._size = self._most + count
        if self._fresh + count <= self._size:
            self._fresh += count
            return slice(self._fresh - count, self._fresh)
        missing = count - len(self._free) - (self._size - self._fresh)
        if missing > 0:
            self._size += missing
            self._tensors = {name: self._grown(kept) for name, kept in self._tensors.items()}
        rest = torch.arange(self._fresh, min(self._size, self._fresh + count))
        self._fresh += len(rest)
        slots = torch.cat([rest, self._free[: count - len(rest)]])
        self._free = self._free[count - len(rest) :]
        return slots

    def _grown(self, kept: Tensor) -> Tensor:
        larger = kept.new_empty((self._size, *kept.shape[1:]))
        larger[: len(kept)] = kept
        return larger

    def _prepare(self, name: str, tensor: Tensor) -> None:
        """Make room for what such a tensor holds, in a type that holds all of it."""
        kept = self._tensors.get(name)
        if kept is None:
            absent, dtype = self._ABSENT.get(name, (0, tensor.dtype))
            self._tensors[name] = kept = torch.empty((self._size, *tensor.shape[1:]), dtype=dtype)
            if self.rows:
                kept[: self._fresh] = absent
        elif tensor.dtype != kept.dtype:
            self._tensors[name] = kept.to(torch.promote_types(kept.dtype, tensor.dtype))

    def shuffle(self, generator: torch.Generator) -> None:
        """Put all rows in a random order."""
        if not self.rows:
            return
        held = torch.cat([self._order, *self._since])
        self._order, self._since = held[torch.randperm(self.rows, generator=generator)], []
        self._shown = list(self._tensors)

    def take(self, size: int) -> Batch:
        """The first rows in their order, whose slots are free from here on."""
        if size > len(self._order):
            raise ValueError(
                f"{size - len(self._order)} rows fewer were read than were counted before"
            )
        slots, self._order = self._order[:size], self._order[size:]
        self._free = torch.cat([self._free, slots])
        self.rows -= size
        taken = {name: self._tensors[name].index_select(0, slots) for name in self._shown}
        rest = (taken.get(name) for name in self._ABSENT)
        return Batch(taken["x"], *rest, columns=self._columns)
