"""Files of tensors: they appear in one step, and what is damaged in them is found on reading.

Such a file is a safetensors file whose metadata have one entry: a JSON object, the *header*. Its
last field, ``checksum``, holds two SHA-256 digests: ``tensors`` of all tensors, and ``header`` of
the entry's own text with zeros for the digits of this one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from reprlib import repr as shortened
from typing import Any

import torch
from torch import Tensor

from einet.data.layout import (
    MOST_BYTES,
    Entry,
    FormatError,
    arrange,
    as_object,
    digest_of,
    octets,
    parse,
)
from einet.data.replace import replacing

__all__ = ["CHECKSUM", "FormatError", "read_header", "read_tensors", "write_tensors"]

#: The field of a header that tells whether a file is as it was written.
CHECKSUM = "checksum"
_ZEROS = "0" * 64


def write_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    key: str,
    header: Mapping[str, Any],
) -> None:
    """Write a file in one step: it is the old one or the new one at any time.

    See :func:`einet.data.replace.replacing` for links, modes and what a killed process leaves.

    Args:
        path: The file; its folder must exist.
        tensors: Tensors by name, on any device. The same ones give the same bytes.
        key: The name of the header among the file's metadata, which tells kinds of files apart.
        header: What JSON can say of them.

    Raises:
        OSError: The file cannot be written; with the number of the error, such as ENOSPC.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_tensors(f"{folder}/a.file", {"x": torch.ones(2)}, "mine", {"units": "mm"})
        ...     header, tensors = read_tensors(f"{folder}/a.file", "mine")
        >>> header["units"], tensors
        ('mm', {'x': tensor([1., 1.])})
    """
    here = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = {name: value for name, value in header.items() if name != CHECKSUM}
    checksum = {"tensors": digest_of(here), "header": _ZEROS}
    text = json.dumps({**content, CHECKSUM: checksum})
    before, _, after = text.rpartition(_ZEROS)
    text = before + hashlib.sha256(text.encode()).hexdigest() + after
    beginning, order = arrange(here, {key: text})
    with replacing(path) as file:
        file.write(beginning)
        for name in order:
            file.write(octets(here[name]))


def read_tensors(
    path: str | os.PathLike[str], key: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and all tensors of a file that :func:`write_tensors` wrote, checked.

    They are those that the checksum is of. Files of earlier releases have none: a header without
    the field ``checksum`` is taken as it is. Memory grows with the length of the file, and with
    nothing that it says.

    Args:
        path: The file.
        key: The name of the header.

    Raises:
        FormatError: The file is of another kind or damaged. The message does not name the file.
        OSError: There is no such file, or it cannot be read.
    """
    with _opened(path) as (file, length):
        metadata, entries = _layout(file, length)
        header = _header(metadata, key, length)
        tensors = {}
        for name, entry in sorted(entries.items(), key=lambda item: item[1].begin):
            tensors[name] = _tensor(file, name, entry)
    if CHECKSUM in header and digest_of(tensors) != header[CHECKSUM]["tensors"]:
        raise FormatError("its tensors are damaged: they are not those that the checksum is of")
    return header, tensors


def read_header(path: str | os.PathLike[str], key: str) -> dict[str, Any]:
    """The header alone, with its own checksum checked; no tensor is read.

    Args:
        path, key: As in :func:`read_tensors`, which tells what is raised, too.
    """
    with _opened(path) as (file, length):
        metadata, _ = _layout(file, length)
    return _header(metadata, key, length)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[BufferedReader, int]]:
    """A plain file to read from, and its length; no other kind is waited for."""
    path = os.fspath(path)
    # Twice: to open a device can have effects, and what there is may change meanwhile.
    _check_plain(path, os.stat(path).st_mode)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        _check_plain(path, status.st_mode)
        yield file, status.st_size


def _check_plain(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "This must be one file, not a folder", path)
    if not stat.S_ISREG(mode):
        raise FormatError("it is no plain file, but a pipe, a socket or a device")


def _layout(file: BufferedReader, length: int) -> tuple[dict[str, str], dict[str, Entry]]:
    beginning = file.read(8)
    size = int.from_bytes(beginning, "little")
    if len(beginning) < 8 or size > min(length - 8, MOST_BYTES):
        raise FormatError("it is no safetensors file, or only the beginning of one")
    return parse(file.read(size), length - 8 - size)


def _header(metadata: dict[str, str], key: str, length: int) -> dict[str, Any]:
    if key not in metadata:
        raise FormatError("it is a safetensors file, but einet did not write it")
    text = metadata[key]
    header = as_object(text.encode("utf-8", "surrogatepass"), "its metadata", length)
    if CHECKSUM not in header:
        return header
    checksum = header[CHECKSUM]
    right = isinstance(checksum, dict) and checksum.keys() >= {"tensors", "header"}
    digits = checksum["header"] if right else None
    if not isinstance(digits, str) or not re.fullmatch("[0-9a-f]{64}", digits):
        raise FormatError(f"its metadata are damaged: {CHECKSUM} is {shortened(checksum)}")
    before, _, after = text.rpartition(digits)
    plain = (before + _ZEROS + after).encode("utf-8", "surrogatepass")
    if hashlib.sha256(plain).hexdigest() != digits:
        raise FormatError("its metadata are damaged: they are not those that the checksum is of")
    return header


def _tensor(file: BufferedReader, name: str, entry: Entry) -> Tensor:
    try:
        tensor = torch.empty(entry.shape, dtype=entry.kind)
    except (RuntimeError, TypeError, OverflowError) as error:  # [0, 2⁶⁰, 2⁶⁰], say
        raise FormatError(f"{name!r:.80} has the shape {list(entry.shape)}: {error}") from error
    content = octets(tensor)
    if content.nbytes and file.readinto(content) != content.nbytes:
        raise FormatError("it became shorter while it was read")
    if entry.kind == torch.bool and tensor.numel() and tensor.view(torch.uint8).max() > 1:
        raise FormatError(f"{name!r:.80} must hold 0 and 1 for false and true")
    return tensor
