"""Calls recorded as CUDA graphs that share one pool of memory: all that touches CUDA about them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

__all__ = ["Recorded", "Tape", "on", "turn"]

Result = TypeVar("Result")

#: To be held while something is recorded, and while a whole device is waited for: torch has one
#: stream for all recordings, and CUDA refuses to wait for that.
turn = threading.Lock()


@dataclass(frozen=True)
class Recorded(Generic[Result]):
    """One recorded call.

    Attributes:
        play: Makes the call again.
        out: What the call returns, at places that every replay writes to anew.
    """

    play: Callable[[], None]
    out: Result

    def replay(self) -> Result:
        """What the call returns now, with what lies at the places that it reads."""
        self.play()
        return self.out


class Tape:
    """Recordings in one pool of memory.

    What one call returns may lie where another one, that was recorded **before** it, has worked: it
    is good until that one is replayed. What the first call on a tape returns is never written to by
    others, as long as somebody holds it.

    Args:
        device: Where the calls are made.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream: torch.cuda.Stream | None = None

    def begin(self) -> None:
        """Wait for what was begun on this tape, should that have been in another stream."""
        stream = torch.cuda.current_stream(self._device)
        if self._stream is not None and self._stream != stream:
            stream.wait_stream(self._stream)
        self._stream = stream

    def record(self, call: Callable[[], Result]) -> Recorded[Result]:
        """Make a call once, so that all it needs is compiled and kept, and then record it.

        Other threads may go on meanwhile: what they do is not recorded.

        Args:
            call: It reads what changes from tensors made before, and never waits for the device.

        Raises:
            RuntimeError: Where it does wait, or where memory is short.
        """
        with torch.inference_mode(False), torch.no_grad():
            call()
            graph = torch.cuda.CUDAGraph()
            options: Any = {"pool": self._pool, "capture_error_mode": "thread_local"}
            with turn, torch.cuda.graph(graph, **options):
                out = call()
        return Recorded(graph.replay, out)

    def settle(self) -> None:
        """Wait for all that was begun, before memory is given away."""
        with turn:
            torch.cuda.synchronize(self._device)


def on(device: torch.device) -> AbstractContextManager:
    """A device as the current one; mostly it is already."""
    if device.type != "cuda" or torch.cuda.current_device() == device.index:
        return nullcontext()
    return torch.cuda.device(device)
