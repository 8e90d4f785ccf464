"""Training data: checked once, cut into mini-batches, brought to the model's device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from einet.data.batch import Batch

__all__ = ["Rows"]

# Data are moved to a GPU as a whole if they take no more than this share of its free memory.
_RESIDENT_SHARE = 0.25


class Rows:
    """Checked data on their way to a model's device, as a whole or mini-batch by mini-batch.

    Data that would crowd a GPU stay in main memory. Each mini-batch of them is gathered in pinned
    memory and copied on a stream of its own, while the GPU is at work on the one before.
    """

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda" and batch.x.device.type == "cpu":
            free, _ = torch.cuda.mem_get_info(device)
            if batch.nbytes > _RESIDENT_SHARE * free:
                self._stream = torch.cuda.Stream(device)
        self._batch = batch if self._stream is not None else batch.to(device)

    def __len__(self) -> int:
        return len(self._batch)

    @property
    def batch(self) -> Batch:
        """All rows, wherever they lie."""
        return self._batch

    def batches(self, size: int, order: Int[Tensor, " rows"] | None = None) -> Iterator[Batch]:
        """Mini-batches on the model's device: of the rows named, in that order, or of all."""
        if order is not None:
            # Once for all mini-batches: an index on another device would be waited for every time.
            order = order.to(self._batch.x.device)
        count = len(self) if order is None else len(order)
        parts = [slice(start, start + size) for start in range(0, count, size)]
        if self._stream is not None:
            yield from self._staged(parts, order, self._stream)
            return
        for part in parts:
            yield self._batch[part if order is None else order[part]]

    def _staged(
        self, parts: list[slice], order: Tensor | None, stream: torch.cuda.Stream
    ) -> Iterator[Batch]:
        """Mini-batches copied to the GPU one ahead of the one at work."""

        def copied(part: slice) -> tuple[Batch, torch.cuda.Event]:
            # The allocators of torch keep pinned memory until the copy from it is done.
            pinned = self._batch.map(lambda tensor: _pinned(tensor, part, order))
            with torch.cuda.stream(stream):
                there = pinned.map(lambda tensor: tensor.to(stream.device, non_blocking=True))
            done = torch.cuda.Event()
            done.record(stream)
            return there, done

        ahead = copied(parts[0])
        for number in range(len(parts)):
            batch, ready = ahead
            if number + 1 < len(parts):
                ahead = copied(parts[number + 1])
            at_work = torch.cuda.current_stream(stream.device)
            at_work.wait_event(ready)
            # Their memory belongs to the copying stream, which must not use it again too early.
            batch.map(lambda tensor, user=at_work: _record(tensor, user))
            yield batch


def _pinned(tensor: Tensor, part: slice, order: Tensor | None) -> Tensor:
    """Some rows in pinned memory, from where a GPU fetches them by itself."""
    if order is None:
        return tensor[part].pin_memory()
    rows = order[part]
    shape = (len(rows), *tensor.shape[1:])
    out = torch.empty(shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    return torch.index_select(tensor, 0, rows, out=out)


def _record(tensor: Tensor, stream: torch.cuda.Stream) -> Tensor:
    tensor.record_stream(stream)
    return tensor
