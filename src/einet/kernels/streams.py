"""Work that need not wait: run beside the main line of a pass where a device can do both."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import torch
from torch import Tensor

__all__ = ["Beside"]

_streams: dict[torch.device, torch.cuda.Stream] = {}


class Beside:
    """Within a ``with`` block, ``run`` starts work that later launches do not wait for.

    On CUDA it runs in a second stream, once all that was launched before is done; leaving the block
    makes the first stream wait for it. Elsewhere it runs at once.
    """

    def __init__(self, like: Tensor) -> None:
        self._device = like.device if like.is_cuda else None
        # Memory that the work refers to must outlive it: it was allocated in the other stream.
        self._work: list[Callable[[], None]] = []

    def __enter__(self) -> Beside:
        return self

    def run(self, work: Callable[[], None]) -> None:
        """Start work that need not be waited for."""
        if self._device is None:
            work()
            return
        stream = _streams.get(self._device)
        if stream is None:
            stream = _streams[self._device] = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        self._work.append(work)
        with torch.cuda.stream(stream):
            work()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._device is not None and self._work:
            torch.cuda.current_stream(self._device).wait_stream(_streams[self._device])
        self._work.clear()
