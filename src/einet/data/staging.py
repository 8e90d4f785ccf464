"""Rows on their way to a model's device, as a whole or mini-batch by mini-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from einet.data.batch import Batch

__all__ = ["Staging", "pinned_copy"]

# Data are moved to a GPU as a whole if they take no more than this share of its free memory.
_RESIDENT_SHARE = 0.25


def pinned_copy(order: Int[Tensor, " rows"], device: torch.device) -> Int[Tensor, " rows"]:
    """Numbers of rows on a device; a plain copy to a GPU would wait for all asked of it before."""
    if device.type != "cuda" or order.is_cuda:
        return order.to(device)
    return order.pin_memory().to(device, non_blocking=True)


class Staging:
    """Brings rows to a device.

    Data that would crowd a GPU stay in main memory. Each mini-batch of them is gathered in pinned
    memory and copied on a stream of its own, while the GPU is at work on the one before.

    Args:
        batch: The rows.
        device: Where they are wanted.
    """

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda" and batch.x.device.type == "cpu":
            free, _ = torch.cuda.mem_get_info(device)
            if batch.nbytes > _RESIDENT_SHARE * free:
                self._stream = torch.cuda.Stream(device)
        #: All rows, wherever they lie.
        self.batch = batch if self._stream is not None else batch.to(device)

    def batches(
        self, parts: Sequence[slice], order: Int[Tensor, " rows"] | None = None
    ) -> Iterator[Batch]:
        """Parts of the rows on the device, counted in the order given."""
        if order is not None:
            # Once for all mini-batches: an index on another device would be waited for every time.
            order = order.to(self.batch.x.device)
        if self._stream is not None:
            yield from self._staged(parts, order, self._stream)
            return
        for part in parts:
            yield self.batch[part if order is None else order[part]]

    def _staged(
        self, parts: Sequence[slice], order: Tensor | None, stream: torch.cuda.Stream
    ) -> Iterator[Batch]:
        """Mini-batches copied to the GPU one ahead of the one at work."""

        def copied(part: slice) -> tuple[Batch, torch.cuda.Event]:
            # The allocators of torch keep pinned memory until the copy from it is done.
            pinned = self.batch.map(lambda tensor: _pinned(tensor, part, order))
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
