"""Where image files lie: in a folder or in a zip archive."""

from __future__ import annotations

import threading
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

from einet.data.images.limits import MAX_FILE_BYTES, ImageError, read_file, read_some

__all__ = ["FileSource", "FolderSource", "ZipSource", "is_image", "open_source"]

_SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)

# Decompressors that take no limit are given no more than this at once.
_SMALL_PIECE = 1 << 12
_PIECE = 1 << 20


class FileSource(ABC):
    """Image files in a fixed order; several threads may read at once.

    Args:
        root: The folder or the archive.
        names: The files in it, with ``/`` between folders.
    """

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root, self.names = root, names

    @abstractmethod
    def read(self, number: int, most: int = MAX_FILE_BYTES) -> bytes:
        """The content of a file, which is refused if it has more than so many bytes."""

    @abstractmethod
    def take(self, numbers: Iterable[int]) -> FileSource:
        """Some of the files, in the given order."""

    def describe(self, number: int) -> str:
        """What error messages call a file."""
        return str(self.root / self.names[number])

    def __len__(self) -> int:
        return len(self.names)


class FolderSource(FileSource):
    """Files in a folder and the folders in it; final."""

    def read(self, number: int, most: int = MAX_FILE_BYTES) -> bytes:
        """The content of a file in the folder."""
        return read_file(self.root / self.names[number], most)

    def take(self, numbers: Iterable[int]) -> FolderSource:
        """Some of the folder's files, in the given order."""
        return FolderSource(self.root, [self.names[number] for number in numbers])


class ZipSource(FileSource):
    """Files in a zip archive; final."""

    def __init__(
        self, root: Path, names: Sequence[str], archive: zipfile.ZipFile | None = None
    ) -> None:
        super().__init__(root, names)
        # Reading the list of a large archive takes a while: all parts of a set share it.
        self._archive = _open_archive(root) if archive is None else archive
        self._lock = threading.Lock()

    def read(self, number: int, most: int = MAX_FILE_BYTES) -> bytes:
        """The content of a file, unpacked; one thread at a time."""
        try:
            with self._lock:
                return self._unpacked(number, most)
        except ImageError:
            raise
        except Exception as error:
            # zipfile raises what it and the decompressors stumble over, which can be anything, a
            # MemoryError among it: LZMA files declare how much memory to unpack them with.
            raise ImageError(
                f"{self.describe(number)} cannot be unpacked: {str(error) or type(error).__name__}"
            ) from error

    def _unpacked(self, number: int, most: int) -> bytes:
        member = self._archive.getinfo(self.names[number])
        if member.file_size > most:
            raise ImageError(
                f"{self.describe(number)} declares {member.file_size} bytes, packed into "
                f"{member.compress_size}; at most {most} are allowed in an image file, and a "
                "larger max_pixels (--max-pixels) allows more"
            )
        limited = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        with self._archive.open(member) as file:
            # One byte more than there should be: at the end the checksum is compared.
            return bytes(read_some(file, member.file_size + 1, _PIECE if limited else _SMALL_PIECE))

    def take(self, numbers: Iterable[int]) -> ZipSource:
        """Some of the archive's files, in the given order; the archive is opened once for all."""
        part = ZipSource(self.root, [self.names[number] for number in numbers], self._archive)
        part._lock = self._lock
        return part

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process opens the archive for itself.
        return ZipSource, (self.root, self.names)


def open_source(root: str | PathLike[str]) -> FileSource:
    """All images of a folder (with the folders in it) or of a zip archive, sorted by name.

    A file is an image if its name ends like one. Hidden files are left out, and so is what is no
    file: folders, pipes, links to nowhere.
    """
    root = Path(root)
    if root.is_dir():
        files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        names = sorted(path.as_posix() for path in files if is_image(path.as_posix()))
        source: FileSource = FolderSource(root, names)
    elif root.is_file():
        archive = _open_archive(root)
        names = sorted(name for name in archive.namelist() if is_image(name))
        source = ZipSource(root, names, archive)
    else:
        raise FileNotFoundError(f"root must be a folder or a zip archive, but there is no {root}")
    if not names:
        endings = ", ".join(sorted(_SUFFIXES))
        raise FileNotFoundError(f"there are no images in root={root}; looked for {endings}")
    return source


def is_image(name: str) -> bool:
    """Whether a file is taken for an image, by its path within a folder or an archive.

    Example:
        >>> is_image("cats/Tom.JPEG"), is_image("cats/.hidden.png")
        (True, False)
    """
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
    return path.suffix.lower() in _SUFFIXES and not hidden


def _open_archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(f"{path} is no intact zip archive: {error}") from error
