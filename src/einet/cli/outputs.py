"""Where commands write: looked at before the work begins.

Work of hours must not be lost because its result cannot be written, and what is written must not
take the place of what was read, of another result, or of a file that is something else.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from einet.imaging.reading import is_data
from einet.learning.checkpoint_file import is_checkpoint, is_run_folder
from einet.storage import load_metadata

__all__ = ["Kind", "Output", "check_outputs", "check_space"]

#: What a file is. One that is there may be replaced by one of its kind; by ``"any"``, anything may.
#: Checkpoints lie in a folder of their own, or in a file where an earlier release wrote one.
Kind = Literal["any", "checkpoint", "model", "png"]

_PNG = b"\x89PNG\r\n\x1a\n"
_WORDS = {
    "checkpoint": "checkpoint of a training run",
    "model": "model",
    "png": "PNG file",
}


@dataclass(frozen=True)
class Output:
    """A file that a command is going to write.

    Attributes:
        option: The option that says where.
        path: The file.
        kind: What it will be.
        makes_folder: Whether its folder is made where there is none.
    """

    option: str
    path: Path
    kind: Kind
    makes_folder: bool = False


def check_outputs(outputs: Sequence[Output], inputs: Mapping[str, Path]) -> None:
    """Raise, naming the option, if one of these files cannot or must not be written.

    Args:
        outputs: All files that the command is going to write.
        inputs: What it reads, files and folders, by the names of the arguments. Of a folder all
            files count whose names are those of images and other data.
    """
    for output in outputs:
        _check_place(output)
    for folder, option in {_folder(output): output.option for output in outputs}.items():
        _check_writable(folder, option)
    _check_inputs(outputs, inputs)
    seen: dict[Any, Output] = {}
    for output in outputs:
        other = seen.setdefault(_identity(output.path), output)
        if other is not output:
            raise ValueError(
                f"{output.option}: {output.path} is the same file as {other.path}, which is "
                f"written too ({other.option}); give another"
            )
    for output in outputs:
        _check_replaced(output)


def check_space(needed: Iterable[tuple[Output, int]]) -> None:
    """Raise if there is no room for files of about so many bytes.

    Args:
        needed: Outputs, and the bytes of each.
    """
    devices: dict[int, tuple[Output, int]] = {}
    for output, size in needed:
        device = os.stat(_folder(output)).st_dev
        first, before = devices.get(device, (output, 0))
        devices[device] = first, before + size
    for output, size in devices.values():
        free = shutil.disk_usage(_folder(output)).free
        if free < size:
            raise OSError(
                errno.ENOSPC,
                f"{output.option}: there is no room for {size / 1e6:,.1f} MB, only for "
                f"{free / 1e6:,.1f} MB",
                str(output.path),
            )


def _folder(output: Output) -> Path:
    """The folder that the file will be in; where it will be made, the one that is there."""
    path = Path(os.path.realpath(output.path))
    folder = path if output.kind == "checkpoint" and path.is_dir() else path.parent
    while output.makes_folder and not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def _check_place(output: Output) -> None:
    path, option, folder = output.path, output.option, _folder(output)
    if not os.path.isdir(folder):
        if os.path.exists(folder):
            raise NotADirectoryError(f"{option}: {folder} is no folder")
        raise FileNotFoundError(f"{option}: there is no folder {path.parent}")
    if os.path.isdir(path):
        if output.kind != "checkpoint":
            raise IsADirectoryError(f"{option}: {path} is a folder; give the name of a file")
        if not is_run_folder(path):
            raise FileExistsError(
                f"{option}: {path} is a folder that holds other things than checkpoints; it is "
                "not written to: give another"
            )
        return
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        # A name can be too long, or lead in circles.
        raise OSError(f"{option}: {path} cannot be written: {error.strerror}") from error
    if not stat.S_ISREG(there.st_mode):
        raise ValueError(f"{option}: {path} is no file, but a device, a pipe or the like")
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{option}: {path} may not be written to")


def _check_writable(folder: Path, option: str) -> None:
    """By writing: rights, quotas and file systems have more ways to refuse than can be asked."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0")
            file.flush()
    except OSError as error:
        raise OSError(
            f"{option}: nothing can be written to {folder}: {error.strerror or error}"
        ) from error


def _check_inputs(outputs: Sequence[Output], inputs: Mapping[str, Path]) -> None:
    there = {_identity(output.path): output for output in outputs if output.path.exists()}
    if not there:
        return
    for argument, path in inputs.items():
        for file in _files(path):
            output = there.get(_identity(file))
            if output is not None:
                raise ValueError(
                    f"{output.option}: {output.path} is read by this command ({argument}: "
                    f"{file}); give another"
                )


def _files(path: Path) -> Iterator[Path]:
    """What is read of an input, at most."""
    if not path.is_dir():
        yield path
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names if is_data(name))


def _identity(path: Path) -> Any:
    """Equal for all names of a file; of one that is not there, for all names it would have."""
    real = Path(os.path.realpath(path))
    try:
        found = os.stat(real)
        return found.st_dev, found.st_ino
    except OSError:
        pass
    return str(real.parent), real.name.lower() if _ignores_case(real.parent) else real.name


def _ignores_case(folder: Path) -> bool:
    """Whether names that differ in case are the same file, as far as its own name tells."""
    other = folder.with_name(folder.name.swapcase()) if folder.name else folder
    try:
        return other.name != folder.name and os.path.samefile(folder, other)
    except OSError:
        return False


def _check_replaced(output: Output) -> None:
    path = output.path
    if output.kind != "any" and path.exists() and not _is_of_kind(path, output.kind):
        raise FileExistsError(
            f"{output.option}: {path} is there already and is no {_WORDS[output.kind]}; it is not "
            "replaced: give another, or remove it"
        )


def _is_of_kind(path: Path, kind: Kind) -> bool:
    if kind == "checkpoint":
        return is_checkpoint(path) or is_run_folder(path)
    if kind == "png":
        with path.open("rb") as file:
            return file.read(len(_PNG)) == _PNG
    try:
        load_metadata(path)
    except (OSError, ValueError):
        return False
    return True
