"""One run to a folder: a lock that ends with the process that holds it, however it ends."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["LOCK", "RunLock"]

#: The name of the file that is locked; it stays when the lock is given up.
LOCK = "lock"
# Descriptors of the locks that this process holds.
_held: set[int] = set()


def _let_go() -> None:
    """In a process that was forked: a lock is not to outlive the one that took it."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class RunLock:
    """Held by a run for as long as it writes to a folder.

    The system ends it with the process, also if that is killed. The file says who holds it, for
    messages; where a file system knows no locks, that is what counts, and a process that is no more
    holds nothing.

    Args:
        folder: The folder, which must exist.

    Raises:
        BlockingIOError: Another run holds it.
        OSError: Nothing can be written to the folder.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, RunLock(folder):
        ...     with RunLock(folder):
        ...         pass
        Traceback (most recent call last):
        BlockingIOError: ... checkpoint: another run, process ..., writes to this folder...
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._path = Path(folder) / LOCK
        self._descriptor = -1

    def __enter__(self) -> RunLock:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            descriptor = os.open(self._path, flags, 0o666)
        except OSError as error:
            raise type(error)(
                error.errno,
                f"checkpoint: nothing can be written to this folder ({error.strerror})",
                str(self._path.parent),
            ) from error
        try:
            self._take(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _held.add(descriptor)
        return self

    def _take(self, descriptor: int) -> None:
        """Lock the file, and write into it who did."""
        locked = False
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = True
            except BlockingIOError:
                raise self._refusal(_holder(descriptor)) from None
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
                    raise
        holder = _holder(descriptor)
        if not locked and _lives(holder):
            raise self._refusal(holder)
        text = json.dumps({"process": os.getpid(), "machine": socket.gethostname()}).encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)

    def _refusal(self, holder: dict[str, Any]) -> BlockingIOError:
        process = holder.get("process", "?")
        machine = holder.get("machine")
        where = "" if machine in (None, socket.gethostname()) else f" on {machine!r:.60}"
        return BlockingIOError(
            errno.EAGAIN,
            f"checkpoint: another run, process {process}{where}, writes to this folder; wait for "
            "its end, or give another folder",
            str(self._path.parent),
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor in _held:
            _held.remove(self._descriptor)
            # Empty is free: for those who cannot lock.
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
        self._descriptor = -1


def _holder(descriptor: int) -> dict[str, Any]:
    """Who wrote into a lock file; nothing where it does not say."""
    try:
        told = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _lives(holder: dict[str, Any]) -> bool:
    """Whether a process that says it holds a lock may be at work."""
    process = holder.get("process")
    if not isinstance(process, int) or isinstance(process, bool) or not 0 < process < 1 << 31:
        return False
    if holder.get("machine") != socket.gethostname():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
