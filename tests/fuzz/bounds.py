"""Work that may take no more memory than it should."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["bounded_memory"]

_STATUS = Path("/proc/self/statm")


@contextmanager
def bounded_memory(more: int) -> Iterator[None]:
    """No more than so many bytes beyond what the process has: further ones raise MemoryError.

    Where the system does not tell what a process has, nothing is bounded.
    """
    if not _STATUS.exists():
        yield
        return
    has = int(_STATUS.read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (has + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
