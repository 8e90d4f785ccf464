"""Arrays of numbers in MATLAB's files, version 5 to 7, read no further than they are asked for.

Such a file is a header of 128 bytes and then one element for each variable, compressed by zlib as a
rule. What an element declares is known after its first few bytes: it is compared with a limit, and
with itself, before the numbers are unpacked.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Shaped

from einet._memory import check_room
from einet.data.images.limits import (
    MAX_PIXELS,
    Readable,
    as_max_pixels,
    check_unpacked,
    open_file,
    read_some,
)

__all__ = ["Variable", "read", "variables"]

_HEADER_BYTES, _TAG_BYTES = 128, 8
_MATRIX, _COMPRESSED = 14, 15
# How numbers are stored, by the number of the type.
_STORED = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
# What a variable is, by the number of its class; numbers from the sixth on.
_CLASSES = (
    "nothing", "cell", "struct", "object", "char", "sparse", "float64", "float32", "int8", "uint8",
    "int16", "uint16", "int32", "uint32", "int64", "uint64",
)  # fmt: skip
_FIRST_NUMERIC = 6
_COMPLEX = 0x0800
_MOST_AXES, _MOST_NAME = 32, 256
_PIECE = 1 << 16


@dataclass(frozen=True)
class Variable:
    """What a file says of one of its variables.

    Attributes:
        name: Its name.
        shape: Its size along each axis.
        kind: The type of its numbers, as numpy calls it, or what else it is.
        place: Where its element begins in the file.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    place: int

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return math.prod(self.shape)

    @property
    def is_numeric(self) -> bool:
        """Whether it is an array of real numbers."""
        return self.kind in _CLASSES[_FIRST_NUMERIC:]


def variables(path: str | PathLike[str], names: Sequence[str]) -> dict[str, Variable]:
    """Those of some names that are in a file; nothing but their headers is read."""
    with open_file(path) as file:
        try:
            found = [element.variable for element in _elements(file)]
        except (_Damaged, zlib.error, struct.error) as error:
            raise _named(path, error) from error
    return {variable.name: variable for variable in found if variable.name in names}


def read(
    path: str | PathLike[str], variable: Variable, max_pixels: int = MAX_PIXELS
) -> Shaped[np.ndarray, "..."]:
    """The numbers of a variable, in the order of MATLAB, the first axis fastest.

    Args:
        path: The file.
        variable: One that :func:`variables` found there, and that is numeric.
        max_pixels: Four times as many bytes may be in a compressed one; see
            :func:`~einet.data.images.limits.check_unpacked`.
    """
    max_pixels = as_max_pixels(max_pixels)
    with open_file(path) as file:
        try:
            return _read(file, f"{variable.name} in {path}", variable, max_pixels)
        except (_Damaged, zlib.error, struct.error) as error:
            raise _named(path, error) from error


class _Damaged(ValueError):
    """What the file declares cannot be."""


class _Unpacked:
    """The content of a compressed element, read in pieces."""

    def __init__(self, file: BinaryIO, packed: int) -> None:
        self._file, self._left = file, packed
        self._inflate = zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end, where the checksum has been compared."""
        while not self._inflate.eof:
            given = self._inflate.unconsumed_tail
            if not given:
                given = self._file.read(min(_PIECE, self._left))
                self._left -= len(given)
            part = self._inflate.decompress(given, size)
            if part or self._inflate.eof:
                return part
            if not given:
                raise _Damaged("a compressed variable ends too early")
        return b""


class _Element(NamedTuple):
    """A variable whose header was read from a stream that continues with its numbers."""

    variable: Variable
    stream: Readable
    order: str
    #: The bytes that it is compressed to, None where it is not.
    packed: int | None
    is_complex: bool


def _elements(file: BinaryIO, only: int | None = None) -> Iterator[_Element]:
    """The variables of a file, or the one at a place."""
    size = os.fstat(file.fileno()).st_size
    header = file.read(_HEADER_BYTES)
    order = {b"IM": "<", b"MI": ">"}.get(header[126:])
    if order is None or struct.unpack(f"{order}H", header[124:126])[0] != 0x0100:
        raise _Damaged(f"it begins with {header[:19]!r}")
    place = _HEADER_BYTES if only is None else only
    while place < size:
        file.seek(place)
        kind, length = struct.unpack(f"{order}2I", _exactly(file, _TAG_BYTES))
        end = place + _TAG_BYTES + length
        if kind not in (_MATRIX, _COMPRESSED) or end > size:
            raise _Damaged(f"at byte {place} there is no variable that ends within the file")
        if kind == _COMPRESSED:
            stream: Readable = _Unpacked(file, length)
            inner, _ = struct.unpack(f"{order}2I", _exactly(stream, _TAG_BYTES))
            if inner != _MATRIX:
                raise _Damaged(f"at byte {place} there is no variable")
            yield _element(stream, order, place, length)
        else:
            yield _element(file, order, place, None)
        if only is not None:
            return
        # Elements begin at multiples of 8 bytes, but for compressed ones.
        place = end if kind == _COMPRESSED else end + -end % 8


def _element(stream: Readable, order: str, place: int, packed: int | None) -> _Element:
    """Read flags, sizes and name."""
    flags = np.frombuffer(_small(stream, order, 8), f"{order}u4")
    shape = np.frombuffer(_small(stream, order, 4 * _MOST_AXES), f"{order}i4")
    name = _small(stream, order, _MOST_NAME)
    if flags.size != 2 or (shape < 0).any() or int(flags[0] & 0xFF) >= len(_CLASSES):
        raise _Damaged(f"the variable at byte {place} has an impossible size or class")
    variable = Variable(
        name.decode("latin-1"),
        tuple(int(n) for n in shape),
        _CLASSES[int(flags[0] & 0xFF)],
        place,
    )
    return _Element(variable, stream, order, packed, bool(flags[0] & _COMPLEX))


def _small(stream: Readable, order: str, most: int) -> bytes:
    """A part of an element that has at most so many bytes."""
    _, length, data = _tag(stream, order)
    if length > most:
        raise _Damaged(f"a part of {length} bytes stands where there are at most {most}")
    if data is not None:
        return data
    return _exactly(stream, length + -length % 8)[:length]


def _tag(stream: Readable, order: str) -> tuple[int, int, bytes | None]:
    """Type and length of a part, and its bytes where they are few and stand in the tag itself."""
    start = _exactly(stream, _TAG_BYTES)
    kind, length = struct.unpack(f"{order}2I", start)
    if kind >> 16:
        kind, length = kind & 0xFFFF, kind >> 16
        if length > 4:
            raise _Damaged("a short part is longer than 4 bytes")
        return kind, length, start[4 : 4 + length]
    return kind, length, None


def _read(
    file: BinaryIO, name: str, variable: Variable, max_pixels: int
) -> Shaped[np.ndarray, "..."]:
    (element,) = _elements(file, variable.place)
    if element.variable != variable or not variable.is_numeric or element.is_complex:
        raise _Damaged(f"{variable.name} is no array of real numbers, or has changed")
    kind, length, data = _tag(element.stream, element.order)
    if kind not in _STORED:
        raise _Damaged(f"{variable.name} is stored in the unknown type {kind}")
    stored = np.dtype(element.order + _STORED[kind])
    if length != variable.size * stored.itemsize:
        raise _Damaged(
            f"{variable.name} declares {variable.size} numbers, but {length} bytes of "
            f"{stored.itemsize} each"
        )
    if data is None:
        if element.packed is not None:
            check_unpacked(name, element.packed, length, max_pixels)
        check_room(f"the numbers of {name}", length)
        content = np.empty(length, dtype=np.uint8)
        _fill(element.stream, content)
    else:
        content = np.frombuffer(data, dtype=np.uint8)
    # What fills up the last part; and then the checksum is compared.
    rest = b"" if element.packed is None else read_some(element.stream, _TAG_BYTES)
    if len(rest) == _TAG_BYTES:
        raise _Damaged(f"{variable.name} goes on after its numbers")
    values = content.view(stored).astype(variable.kind, copy=False)
    return values.reshape(variable.shape, order="F")


def _fill(stream: Readable, content: Shaped[np.ndarray, " bytes"]) -> None:
    done = 0
    while done < len(content):
        part = stream.read(min(_PIECE, len(content) - done))
        if not part:
            raise _Damaged("a variable ends too early")
        content[done : done + len(part)] = np.frombuffer(part, dtype=np.uint8)
        done += len(part)


def _exactly(stream: Readable, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = stream.read(size - len(content))
        if not part:
            raise _Damaged("it ends too early")
        content += part
    return content


def _named(path: str | PathLike[str], error: Exception) -> ValueError:
    return ValueError(f"{path} is no intact MATLAB file (version 5 to 7): {error}")
