"""Reading models from files."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import torch

from einet._version import __version__
from einet.data.files import CHECKSUM, FormatError, read_header, read_tensors
from einet.models.base import Model
from einet.models.record import FORMAT, KEY, VERSION
from einet.storage.build import Content, expect, field

__all__ = ["load", "load_metadata"]

# The fields that a header may have without a checksum.
_FIRST_FIELDS = {"format", "version", "einet", "model", "metadata"}
# What planning and filling a model from a hostile file may raise. Families and sums may be a user's
# own, so that there is no telling; errors of the disk and of memory are none of the file's.
_FAULTS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def load(path: str | os.PathLike[str], device: torch.device | str | None = None) -> Model:
    """Read a model that :func:`save` wrote: the same numbers, bit by bit, in the same type.

    Args:
        path: The file.
        device: Where to put the model; on the CPU by default, wherever it was when saved.

    Raises:
        FormatError: The file is not of this format, is damaged, or of a newer version of it; or
            its numbers are not those of a distribution.
        OSError: There is no such file (``FileNotFoundError``), or it cannot be read.

    Example:
        >>> import einet, tempfile
        >>> graph = einet.random_trees(4, 1, 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     einet.Einet(graph, einet.Bernoulli(), num_sums=3).save(f"{folder}/model.einet")
        ...     model = load(f"{folder}/model.einet")
        >>> model.graph == graph
        True
    """
    path = _checked(path)
    try:
        header, tensors = read_tensors(path, KEY)
        description = field(_checked_header(header), "model", dict)
        model = Content(tensors).model(description)
        if "columns" in description:
            # Files of earlier releases have none. The setter checks that there is a name for each.
            model.columns = field(description, "columns", list)
    except _FAULTS as error:
        raise _damaged(path, error) from error
    return model if device is None else model.to(device)


def load_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What :func:`save` was given as ``metadata``; empty where it was given none.

    Args:
        path: The file. Its tensors are not read; the checksum of all else is checked.

    Raises:
        FormatError, OSError: As :func:`load`.

    Example:
        >>> import einet, tempfile
        >>> model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.einet", metadata={"units": "mm", "columns": [3, 1]})
        ...     load_metadata(f"{folder}/model.einet")
        {'units': 'mm', 'columns': [3, 1]}
    """
    path = _checked(path)
    try:
        header = _checked_header(read_header(path, KEY))
        return field({"metadata": {}, **header}, "metadata", dict)
    except FormatError as error:
        raise _damaged(path, error) from error


def _checked(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "A model is one file, not a folder", str(path))
    return path


def _checked_header(header: dict[str, Any]) -> dict[str, Any]:
    """What a file says beside its tensors, if it is of this format and of a known version."""
    written = header.get("format")
    expect(written == FORMAT, f"its format must be {FORMAT!r}, got {shortened(written)}")
    version = field(header, "version", int)
    expect(
        version <= VERSION,
        f"it has version {version} of the format, and this release of einet ({__version__}) "
        f"reads version {VERSION}; install a newer one (it was written by einet "
        f"{header.get('einet')!s:.20})",
    )
    expect(version >= 1, f"version must be at least 1, got {version}")
    if CHECKSUM not in header:
        # Every release that knows of other fields writes a checksum: its name must be damaged.
        unknown = sorted(header.keys() - _FIRST_FIELDS)
        expect(not unknown, f"its metadata are damaged: there is no field {shortened(unknown)}")
    return header


def _damaged(path: Path, error: Exception) -> FormatError:
    # In one line, of a length that can be read: some of torch's errors come with all it knows.
    what = next(iter(str(error).splitlines()), type(error).__name__)
    # A file could have names that a terminal takes for commands.
    shown = "".join(sign if sign.isprintable() else "?" for sign in what[:600])
    return FormatError(f"{path} is no model that can be loaded: {shown}")
