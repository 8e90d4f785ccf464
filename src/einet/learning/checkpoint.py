"""The state of a training run in a file, to go on from after an interruption."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import time
from collections.abc import Callable, Sequence, Sized
from pathlib import Path
from typing import Any

from torch import Tensor

from einet.data.files import CHECKSUM, FormatError, read_tensors, write_tensors
from einet.data.streams import RowStream
from einet.learning.learner import Learner
from einet.learning.loop import Loop
from einet.learning.plain import as_count, as_fields
from einet.models.base import Model

__all__ = ["Checkpoint", "settings_of", "structure_of"]

_KEY = "einet.checkpoint"
_VERSION = 1
# The header begins with the key; the length comes before it.
_BEGINNING = 4096
# A file is written at most this often, except at the end: it holds all parameters.
_SECONDS_BETWEEN_WRITES = 30.0


class Checkpoint:
    """One file, replaced as a whole, with the settings of the run that it belongs to.

    Args:
        path: The file; None for none, in which case nothing is ever written or read.
        settings: What must be the same for a run to go on; plain values by name.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, settings: dict[str, Any] | None = None
    ) -> None:
        self.path = None if path is None else Path(path)
        self.settings = settings or {}
        self._written = time.perf_counter()
        # Better now than after an hour of training.
        if self.path is not None:
            _check_place(self.path)

    @property
    def due(self) -> bool:
        """Whether the last write was long ago."""
        waited = time.perf_counter() - self._written
        return self.path is not None and waited >= _SECONDS_BETWEEN_WRITES

    def write(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Replace the file by one with this state."""
        if self.path is None:
            return
        header = {"version": _VERSION, "settings": self.settings, "state": state}
        write_tensors(self.path, tensors, _KEY, header)
        self._written = time.perf_counter()

    def saver(self, phase: int) -> list[Callable[[Loop], None]]:
        """What writes the state of a training loop after an epoch, where that is due."""
        return (
            [] if self.path is None else [lambda loop: self.save(phase, loop) if self.due else None]
        )

    def save(self, phase: int, loop: Loop) -> None:
        """Write the state of a training loop, which is that of its last full epoch."""
        state, tensors = loop.state()
        self.write({"phase": phase, **state}, tensors)

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The state in the file, checked to be of this run; None where there is no file.

        What the state says is yet to be checked by whoever takes it up.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            header, tensors = read_tensors(self.path, _KEY)
            _check_header(header)
        except FormatError as error:
            raise FormatError(
                f"checkpoint: {self.path} is no checkpoint that can be resumed: {error}"
            ) from error
        written, now = header["settings"], self.settings
        differing = [
            name for name in {**now, **written} if not _same(written.get(name), now.get(name))
        ]
        if differing:
            changes = "; ".join(
                f"{n} was {written.get(n)!r:.200} and is {now.get(n)!r:.200}" for n in differing
            )
            raise ValueError(
                f"checkpoint: {self.path} is of another training run ({changes}). Give the same "
                "settings and data to go on with it, or resume=False to begin anew"
            )
        return header["state"], tensors


def _check_place(path: Path) -> None:
    """Raise unless a checkpoint may be written to a path: over another one, but nothing else."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "checkpoint must be one file", str(path))
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, "checkpoint: there is no such folder", str(path.parent)
        )
    if not path.exists():
        return
    if not path.is_file():
        raise FormatError(
            f"checkpoint: {path} is no plain file, but a pipe, a socket or a device; give another"
        )
    with open(path, "rb") as file:
        beginning = file.read(_BEGINNING)
    # One that was damaged may be replaced too, if it still looks like one.
    if beginning and _KEY.encode() not in beginning:
        raise FormatError(
            f"checkpoint: {path} is no checkpoint of a training run, and would be replaced by one; "
            "give another name, or remove it first"
        )


def _check_header(header: dict[str, Any]) -> None:
    if CHECKSUM not in header:
        raise FormatError(
            "it has no checksum, as an earlier release of einet wrote it. Go on with that release, "
            "or give resume=False to begin anew"
        )
    try:
        as_fields(header, "its header", ["version", "settings", "state", CHECKSUM])
        as_count(header["version"], "its version", _VERSION, _VERSION)
        for name in ("settings", "state"):
            if not isinstance(header[name], dict):
                raise ValueError(f"its {name} must be an object, got {header[name]!r:.60}")
    except ValueError as error:
        raise FormatError(str(error)) from error


def _same(one: Any, other: Any) -> bool:
    """Equal, up to rounding that may differ between devices."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


def settings_of(
    task: str,
    models: Sequence[Model],
    rows: RowStream,
    valid: RowStream | None,
    learner: Learner,
) -> dict[str, Any]:
    """What must be the same for the training of models, all of one structure, to go on."""
    return {
        "task": task,
        "structure": structure_of(models[0]),
        "models": len(models),
        "rows": len(rows) if isinstance(rows, Sized) else None,
        "data": rows.checksum(),
        "valid": None if valid is None else valid.checksum(),
        "optimizer": learner.settings(),
    }


def structure_of(model: Model) -> str:
    """A few characters that tell a model's structure and families from others."""
    digest = hashlib.sha256()
    for _, einet in model.weighted_einets():
        for name, array in sorted(einet.graph.to_arrays().items()):
            digest.update(f"{name}{array.shape}".encode())
            digest.update(array.tobytes())
        kinds = [
            f"{type(layer).__name__}{tuple(layer.weight.shape)}"
            for layer in einet.circuit.sum_layers
        ]
        digest.update(repr((kinds, einet.num_leaves, einet.num_classes, str(einet.dtype))).encode())
        for group in einet.leaf.family_groups:
            digest.update(f"{type(group.family).__name__}{group.family.config()}".encode())
            for name, value in group.family.hyper.items():
                # These are read off the data, and so have changed after training.
                if name not in ("location", "scale"):
                    digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
