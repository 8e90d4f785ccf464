"""Which files are checkpoints, for those who write or remove them."""

from __future__ import annotations

import os
from pathlib import Path

from safetensors import SafetensorError, safe_open

__all__ = ["is_checkpoint"]

# What the header of a checkpoint is filed under.
_KEY = "einet.checkpoint"


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
            return _KEY in (file.metadata() or {})
    except (SafetensorError, OSError, ValueError):
        return False
