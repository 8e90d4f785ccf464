"""How large images may be, so that a small file cannot ask for all memory.

Formats compress: a file of some kilobytes can promise, and hold, gigabytes of pixels. What a file
declares is therefore compared with a limit before anything is unpacked, and unpacking stops at
what was declared, should the file hold more.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol, runtime_checkable

from einet._checks import as_int

__all__ = [
    "MAX_FILE_BYTES",
    "MAX_PIXELS",
    "Gate",
    "ImageError",
    "Readable",
    "as_max_pixels",
    "check_pixels",
    "check_unpacked",
    "file_bytes",
    "open_file",
    "read_file",
    "read_some",
]

#: The most pixels of one image by default: 8192×8192, more than those of most cameras.
MAX_PIXELS = 1 << 26

# A pixel takes at most so many bytes in a file: four channels of 16 bits.
_BYTES_A_PIXEL = 8
# What a file may hold besides pixels: profiles, previews, texts.
_MORE_BYTES = 1 << 24
# Arrays of photographs and digits shrink to a fifth, drawings to a twentieth; what shrinks more
# than this, and is large, was made to.
_MOST_EXPANSION = 50
# What an unpacked pixel takes in memory: Pillow has four bytes for each.
_UNPACKED = 4
_PIECE = 1 << 20


class ImageError(OSError):
    """A file that is no intact image, or an image that does not have the size it should have.

    Example:
        >>> from einet.data.images import Framing, ImageError
        >>> try:
        ...     Framing(size=8)(b"no image", "cat.png")
        ... except ImageError as error:
        ...     print(error)
        cat.png is no intact image: its format is unknown
    """


@runtime_checkable
class Readable(Protocol):
    """What can be read piece by piece."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""
        ...


def as_max_pixels(value: object) -> int:
    """The argument ``max_pixels``, checked.

    Example:
        >>> as_max_pixels(1_000_000)
        1000000
    """
    return as_int("max_pixels", value, minimum=1)


def check_pixels(name: str, height: int, width: int, max_pixels: int = MAX_PIXELS) -> None:
    """Raise if an image is larger than allowed.

    Args:
        name: What error messages call it.
        height, width: What its header declares.
        max_pixels: The most pixels.

    Example:
        >>> check_pixels("bomb.png", 13_000, 13_000)
        Traceback (most recent call last):
        ...
        einet.data.images.limits.ImageError: bomb.png declares 13000×13000 pixels, more than the
        67108864 that are allowed; a larger max_pixels (--max-pixels) allows more
    """
    if height * width > max_pixels:
        raise ImageError(
            f"{name} declares {height}×{width} pixels, more than the {max_pixels} that are "
            "allowed; a larger max_pixels (--max-pixels) allows more"
        )


def check_unpacked(name: str, packed: int, unpacked: int, max_pixels: int = MAX_PIXELS) -> None:
    """Raise if a compressed array is larger than allowed: than an image may be, and than it looks.

    Args:
        name: What error messages call it.
        packed: The bytes that it takes in the file.
        unpacked: The bytes that it declares to hold.
        max_pixels: The most pixels of an image, each of which counts as four bytes.
    """
    most = max(_UNPACKED * max_pixels, _MOST_EXPANSION * packed)
    if unpacked > most:
        raise ImageError(
            f"{name} declares {unpacked} bytes, packed into {packed}; at most {most} are allowed, "
            f"{_MOST_EXPANSION} times as many, or {_UNPACKED} for each of {max_pixels} pixels; "
            "a larger max_pixels (--max-pixels) allows more"
        )


def file_bytes(max_pixels: int = MAX_PIXELS) -> int:
    """The most bytes of a file that holds one image, however it is stored."""
    return _BYTES_A_PIXEL * max_pixels + _MORE_BYTES


#: That of images of the default size.
MAX_FILE_BYTES = file_bytes()


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read; what is none (a pipe, a device, a folder) is refused, not waited for."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    file = open(path, "rb", opener=opener)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ImageError(f"{path} is no file, but a pipe, a device or the like")
    return file


def read_file(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a file, of at most so many bytes.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with open(f"{folder}/a", "wb") as file:
        ...         _ = file.write(b"content")
        ...     read_file(f"{folder}/a", most=10)
        b'content'
    """
    with open_file(path) as file:
        content = file.read(min(os.fstat(file.fileno()).st_size, most) + 1)
    if len(content) > most:
        raise ImageError(
            f"{path} has more than {most} bytes, the most that are read of such a file; a larger "
            "max_pixels (--max-pixels) allows more"
        )
    return content


def read_some(stream: Readable, size: int, piece: int = _PIECE) -> bytearray:
    """Exactly so many bytes, or fewer where the stream ends; memory grows with what is there."""
    content = bytearray()
    while len(content) < size and (part := stream.read(min(piece, size - len(content)))):
        content += part
    return content


class Gate:
    """Lets work through as long as what is inside does not weigh too much together.

    Something that weighs more than all that is allowed goes through alone.

    Args:
        most: What may be inside at the same time.
    """

    def __init__(self, most: int) -> None:
        self._most, self._inside = most, 0
        self._changed = threading.Condition()

    @contextmanager
    def passing(self, weight: int) -> Iterator[None]:
        """Wait until there is room, and take it."""
        weight = min(weight, self._most)
        with self._changed:
            self._changed.wait_for(lambda: self._inside + weight <= self._most)
            self._inside += weight
        try:
            yield
        finally:
            with self._changed:
                self._inside -= weight
                self._changed.notify_all()
