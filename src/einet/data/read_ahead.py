"""Reading ahead: a thread prepares what comes next while the present is at work."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

__all__ = ["read_ahead"]

_T = TypeVar("_T")
# How often a thread whose reader has gone away looks for that.
_SECONDS = 0.1


def read_ahead(parts: Iterable[_T], most: int = 2) -> Generator[_T]:
    """The same parts, of which a thread prepares at most ``most`` before they are asked for.

    What goes wrong in the thread is raised here, in its turn. Whoever asks for no more parts should
    close the generator; that ends the thread.

    Args:
        parts: What to go through; only the thread touches it from here on.
        most: How many parts may wait.

    Example:
        >>> list(read_ahead(number**2 for number in range(4)))
        [0, 1, 4, 9]
    """
    waiting: queue.Queue[tuple[str, _T | BaseException | None]] = queue.Queue(most)
    gone = threading.Event()

    def put(kind: str, value: _T | BaseException | None) -> bool:
        while not gone.is_set():
            try:
                waiting.put((kind, value), timeout=_SECONDS)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        steps: Iterator[_T] = iter(parts)
        try:
            for part in steps:
                if not put("part", part):
                    break
            else:
                put("end", None)
        except BaseException as error:
            put("error", error)
        finally:
            close = getattr(steps, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=read, name="einet-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = waiting.get()
            if kind == "end":
                return
            if kind == "error":
                assert isinstance(value, BaseException)
                raise value
            yield value  # type: ignore[misc]
    finally:
        gone.set()
        thread.join()
