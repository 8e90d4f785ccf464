"""How tensors lie in a file: a header that names them, then their bytes, as safetensors has it.

Written here rather than left to the package: a file is read through a descriptor, as a file that is
mapped to memory kills the process where it shrinks, and an error of the disk keeps its number.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "MOST_BYTES",
    "Entry",
    "FormatError",
    "arrange",
    "as_object",
    "digest_of",
    "octets",
    "parse",
]

#: A header of more bytes is no safetensors file.
MOST_BYTES = 100_000_000
# Text of a few bytes can become an object of a hundred: so many values take less than 200 MB. A
# file with many tensors has many bytes, too, and so may say more.
_MOST_VALUES = 1_500_000
_BYTES_FOR_ANOTHER = 100
_MOST_AXES = 16
# Only an empty tensor can have an axis that is longer than the file.
_LONGEST_AXIS = 2**62

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {kind: name for name, kind in _TYPES.items()}


class FormatError(ValueError):
    """A file that is damaged, is not what it should be, or was written by a newer release.

    Example:
        >>> import einet, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "model.einet")
        ...     written = file.write_bytes(b"no model")
        ...     try:
        ...         einet.load(file)
        ...     except einet.FormatError as error:
        ...         print("refused:", "or only the beginning of one" in str(error))
        refused: True
    """


@dataclass(frozen=True)
class Entry:
    """One tensor: its type, its shape, and where its bytes are, counted from the header's end."""

    kind: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def octets(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU, not copied."""
    if sys.byteorder != "little":
        raise NotImplementedError("files of tensors need a machine that is little-endian")
    flat = tensor.detach().reshape(-1)
    # A tensor of one element or none may have a stride of 0, which torch takes offence at.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy().data


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of tensors: in the order of their names a line of JSON, then the bytes of each.

    >>> digest_of({"a": torch.zeros(2)})[:16]
    '31a0724e5b94a6a9'
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        line = json.dumps([name, _NAMES[tensor.dtype], list(tensor.shape)])
        digest.update(f"{line}\n".encode())
        digest.update(octets(tensor))
    return digest.hexdigest()


def arrange(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> tuple[bytes, list[str]]:
    """What a file begins with, and the order of the tensors after it.

    The same tensors give the same bytes. Wide types come first, so that all are aligned.
    """
    unknown = [name for name, tensor in tensors.items() if tensor.dtype not in _NAMES]
    if unknown:
        raise ValueError(f"{unknown[0]} is of {tensors[unknown[0]].dtype}, which no file can hold")
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    table: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        begin, end = end, end + tensors[name].nbytes
        kind, shape = _NAMES[tensors[name].dtype], list(tensors[name].shape)
        table[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    # What could not be read again is not written.
    for part in (text, *(value.encode() for value in metadata.values())):
        _check_size(part, end)
    return len(text).to_bytes(8, "little") + text, order


def parse(text: bytes, size: int) -> tuple[dict[str, str], dict[str, Entry]]:
    """The metadata and the tensors of a header, checked to account for each byte after it.

    Args:
        text: The header.
        size: How many bytes of tensors follow it.
    """
    if not text.startswith(b"{"):
        raise FormatError("it is no safetensors file")
    table = as_object(text, "its header", size, unique=True)
    metadata = table.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FormatError("its header is damaged: the metadata must be texts by name")
    entries = {name: _entry(name, described, size) for name, described in table.items()}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise FormatError(
                f"its header is damaged: {name!r:.80} must begin where the tensor before ends, "
                f"at {end}, got {entry.begin}"
            )
        end = entry.end
    if end != size:
        raise FormatError(f"it must hold {end} bytes of tensors, got {size}")
    return metadata, entries


def _entry(name: str, described: Any, size: int) -> Entry:
    damaged = f"its header is damaged: {name!r:.80}"
    if not isinstance(described, dict) or set(described) != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"{damaged} must have a dtype, a shape and data_offsets")
    kind, shape, place = (described[key] for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(kind, str) or kind not in _TYPES:
        raise FormatError(f"{damaged} has the type {shortened(kind)}, which is none of {[*_TYPES]}")
    if not _are_counts(shape, _LONGEST_AXIS) or len(shape) > _MOST_AXES:
        raise FormatError(f"{damaged} has the shape {shortened(shape)}, which no tensor here has")
    if not _are_counts(place, size) or len(place) != 2:
        raise FormatError(f"{damaged} lies at {shortened(place)}, which is not in the file")
    width = _TYPES[kind].itemsize
    if place[1] - place[0] != math.prod(shape) * width:
        raise FormatError(
            f"{damaged} has the shape {shape} of {width} bytes each, but {place[1] - place[0]} "
            "bytes in the file"
        )
    return Entry(_TYPES[kind], tuple(shape), *place)


def _are_counts(values: Any, largest: int) -> bool:
    """Whether this is a list of whole numbers, none of them beyond the largest."""
    return isinstance(values, list) and all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest
        for value in values
    )


def as_object(text: bytes, what: str, size: int, unique: bool = False) -> dict[str, Any]:
    """The object that JSON describes, if it is one and not too large for a file of this size.

    Args:
        text: The JSON.
        what: What it is, for messages.
        size: The bytes of tensors in the file.
        unique: Whether the names within each object must differ.
    """
    _check_size(text, size)
    try:
        value = json.loads(text.decode(), object_pairs_hook=_distinct if unique else None)
    except FormatError as error:
        raise FormatError(f"{what} is damaged: {error}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is damaged: it is no JSON ({error})") from error
    if not isinstance(value, dict):
        raise FormatError(f"{what} is damaged: it must be a JSON object, got {shortened(value)}")
    return value


def _check_size(text: bytes, size: int) -> None:
    values = sum(text.count(mark) for mark in (b"[", b"{", b","))
    most = _MOST_VALUES + size // _BYTES_FOR_ANOTHER
    if len(text) > MOST_BYTES or values > most:
        raise FormatError(
            f"its header may have {MOST_BYTES:,} bytes and {most:,} values at most, got "
            f"{len(text):,} bytes and {values:,} values"
        )


def _distinct(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise FormatError(f"it has {name!r:.80} more than once")
        result[name] = value
    return result
