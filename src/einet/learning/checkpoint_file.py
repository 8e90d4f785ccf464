"""Which files and folders are of checkpoints, for those who write or remove them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError, safe_open

from einet.learning.run_lock import LOCK

__all__ = [
    "CHECKPOINT",
    "checkpoint_name",
    "checkpoints_in",
    "is_checkpoint",
    "is_run_folder",
    "looks_like_checkpoint",
    "remove_checkpoints",
]

#: What the header of a checkpoint is filed under.
CHECKPOINT = "einet.checkpoint"
_NAME = re.compile(r"checkpoint-([0-9]{6,12})\.safetensors")
# What a writer that was killed has left of a checkpoint; see einet.data.replace.
_UNFINISHED = re.compile(r"\.einet-[0-9a-f]+-[0-9a-f]+\.tmp")
# The header begins with the key; the length comes before it.
_BEGINNING = 4096


def checkpoint_name(number: int) -> str:
    """The name of a checkpoint in its folder.

    Example:
        >>> checkpoint_name(7)
        'checkpoint-000007.safetensors'
    """
    return f"checkpoint-{number:06d}.safetensors"


def checkpoints_in(folder: str | os.PathLike[str]) -> dict[int, Path]:
    """The checkpoints of a folder by their numbers, the newest last, going by names alone."""
    there = {}
    for name in os.listdir(folder):
        match = _NAME.fullmatch(name)
        if match is not None:
            there[int(match[1])] = Path(folder, name)
    return dict(sorted(there.items()))


def is_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether a file was written as a checkpoint; what is no file is none, and is not waited for.

    Example:
        >>> is_checkpoint("pyproject.toml")
        False
    """
    if not Path(path).is_file():
        return False
    try:
        with safe_open(path, framework="pt") as file:
            return CHECKPOINT in (file.metadata() or {})
    except (SafetensorError, OSError, ValueError):
        return False


def looks_like_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether a plain file is empty or begins like a checkpoint, be it damaged."""
    with open(path, "rb") as file:
        beginning = file.read(_BEGINNING)
    return not beginning or CHECKPOINT.encode() in beginning


def is_run_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds nothing but what training runs write into theirs; it may be empty."""
    if not os.path.isdir(path):
        return False
    return all(
        name == LOCK or _NAME.fullmatch(name) or _UNFINISHED.fullmatch(name)
        for name in os.listdir(path)
    )


def remove_checkpoints(path: str | os.PathLike[str]) -> None:
    """Remove checkpoints that have served: a file of one, or those of a folder.

    What is no checkpoint stays, whoever put it there; so does a folder that holds such a thing.
    """
    if is_checkpoint(path):
        Path(path).unlink()
    if not os.path.isdir(path):
        return
    for file in checkpoints_in(path).values():
        if file.is_file() and looks_like_checkpoint(file):
            file.unlink()
    if not checkpoints_in(path) and is_run_folder(path):
        for name in os.listdir(path):
            Path(path, name).unlink()
        # Another run may have begun in it.
        with suppress(OSError):
            os.rmdir(path)
