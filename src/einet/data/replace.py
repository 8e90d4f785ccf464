"""Files that are replaced in one step: they are the old one or the whole new one at any time."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows, which does not remove files that are open.
    fcntl = None

__all__ = ["replacing"]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file to write to, which takes the place of ``path`` at the end, and not on an error.

    A link stays a link: what it points to is replaced. An existing file keeps its mode, and its
    owner and group where that is allowed; of a new one the umask decides.

    A process that is killed leaves its unfinished file behind, and the next one to write the same
    ``path`` removes it. Such files bear a mark of the path that they were for, and whoever writes
    one holds a lock on it, which ends with the process: no other is ever removed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/notes.txt") as file:
        ...         _ = file.write(b"whole")
        ...     Path(f"{folder}/notes.txt").read_text()
        'whole'
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "There is no such folder", str(path.parent))
    old = os.stat(path) if path.exists() else None
    if old is not None and stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, "This must be one file, not a folder", str(path))
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "This must be a plain file, no pipe or device", str(path))
    _remove_abandoned(path)
    # In the same folder: a rename is one step only within a file system.
    temporary = path.with_name(f"{_mark(path)}{secrets.token_hex(8)}.tmp")
    try:
        with open(_created(temporary, 0o666 if old is None else 0o600), "wb") as file:
            yield file
            file.flush()
            if old is not None:
                _take_over(file.fileno(), old)
            os.fsync(file.fileno())
            if os.name != "posix":
                file.close()
            # Before the lock ends with the file's closing.
            os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            # Whose disk is full, say, rather than what the unfinished file was called.
            error.filename = str(path)
        raise
    if os.name == "posix":
        # The new name is safe from a crash only once its folder is on the disk too.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _mark(path: Path) -> str:
    """How the names of unfinished files for a path begin; other paths in the folder differ."""
    return f".einet-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}-"


def _created(path: Path, mode: int) -> int:
    """The descriptor of a new file that is locked for as long as it is open."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    while True:
        descriptor = os.open(path, flags, mode)
        if fcntl is None:
            return descriptor
        # Where a file system has no locks, nobody can tell that a file was abandoned, either.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Another process may have found it before it was locked, and taken it for abandoned.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    """Remove unfinished files for this path whose writers are no more."""
    mark = _mark(path)
    # None of them matters enough to fail for: they may belong to others, or vanish meanwhile.
    for name in os.listdir(path.parent):
        if name.startswith(mark) and name.endswith(".tmp"):
            with suppress(OSError):
                _remove_if_abandoned(path.with_name(name))


def _remove_if_abandoned(path: Path) -> None:
    if fcntl is None:
        path.unlink()
        return
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        # Fails while a writer lives. On success nobody else can begin to write to it.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            path.unlink()
    finally:
        os.close(descriptor)


def _take_over(descriptor: int, old: os.stat_result) -> None:
    """Give a file the owner, group and mode of another, as far as is allowed."""
    mode = stat.S_IMODE(old.st_mode)
    if os.name != "posix":
        return
    try:
        os.fchown(descriptor, -1, old.st_gid)
    except PermissionError:
        # What the old group was allowed is none of another's business, unless it is everyone's.
        mode = mode & ~0o070 | (mode & 0o007) << 3
    with suppress(PermissionError):
        os.fchown(descriptor, old.st_uid, -1)
    os.fchmod(descriptor, mode)
