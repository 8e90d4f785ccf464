"""The state of a training run in a file, to go on from after an interruption."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from einet.data.files import write_tensors
from einet.learning.em import EM, StochasticEM
from einet.learning.epoch import Run
from einet.learning.learner import Learner
from einet.models.base import Model
from einet.models.einet import Einet

__all__ = ["Checkpoint", "floating_state", "settings_of"]

_KEY = "einet.checkpoint"
# A file is written at most this often, except at the end: it holds all parameters.
_SECONDS_BETWEEN_WRITES = 30.0


class Checkpoint:
    """One file, replaced as a whole, with the settings of the run that it belongs to.

    Args:
        path: The file; None for none, in which case nothing is ever written or read.
        settings: What must be the same for a run to go on; plain values by name.
    """

    def __init__(self, path: str | os.PathLike[str] | None, settings: dict[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self._settings = settings
        self._written = time.perf_counter()
        if self.path is None:
            return
        # Better now than after an hour of training.
        if self.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "checkpoint must be one file", str(path))
        if not self.path.absolute().parent.is_dir():
            raise FileNotFoundError(
                errno.ENOENT, "checkpoint: there is no such folder", str(self.path.parent)
            )

    @property
    def due(self) -> bool:
        """Whether the last write was long ago."""
        waited = time.perf_counter() - self._written
        return self.path is not None and waited >= _SECONDS_BETWEEN_WRITES

    def write(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Replace the file by one with this state."""
        if self.path is None:
            return
        header = {"settings": self._settings, "state": state}
        write_tensors(self.path, tensors, {_KEY: json.dumps(header)})
        self._written = time.perf_counter()

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The state in the file, checked to be of this run; None where there is no file."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = json.loads((file.metadata() or {}).get(_KEY, "null"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError) as error:
            raise ValueError(f"checkpoint: {self.path} is damaged: {error}") from error
        if not isinstance(header, dict):
            raise ValueError(f"checkpoint: {self.path} is no checkpoint of a training run")
        written, now = header["settings"], self._settings
        differing = [name for name in now if not _same(written.get(name), now[name])]
        if differing:
            told = "; ".join(f"{n} was {written.get(n)!r} and is {now[n]!r}" for n in differing)
            raise ValueError(
                f"checkpoint: {self.path} is of another training run ({told}). Give the same "
                "settings and data to go on with it, or resume=False to begin anew"
            )
        return header["state"], tensors


def _same(one: Any, other: Any) -> bool:
    """Equal, up to rounding that may differ between devices."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


def settings_of(task: str, models: Sequence[Einet], run: Run) -> dict[str, Any]:
    """What must be the same for the training of some Einets on one structure to go on."""
    return {
        "task": task,
        "structure": _structure(models[0]),
        "num_clusters": len(models),
        "rows": len(run.source),
        "data": run.source.checksum,
        "optimizer": _learner(run.learner),
        "epochs": run.epochs,
        "batch_size": run.batch_size,
        "seed": run.seed,
        "from_clusters": run.from_clusters,
    }


def _learner(learner: Learner) -> list[Any]:
    """What can be told of a learner in plain values; a schedule by some of its step sizes."""
    sizes = [learner.step_size_at(progress) for progress in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
    prior = learner.prior if isinstance(learner, EM | StochasticEM) else None
    told = None if prior is None else [float(prior.sums), float(prior.leaves)]
    return [type(learner).__name__, sizes, told]


def _structure(model: Einet) -> str:
    """A few characters that tell a model's structure and families from others."""
    digest = hashlib.sha256()
    for name, array in sorted(model.graph.to_arrays().items()):
        digest.update(f"{name}{array.shape}".encode())
        digest.update(array.tobytes())
    sizes = (model.num_sums, model.num_leaves, model.num_classes, model.sums, str(model.dtype))
    digest.update(repr(sizes).encode())
    for group in model.leaf.family_groups:
        digest.update(f"{type(group.family).__name__}{group.family.config()}".encode())
        for name, value in group.family.hyper.items():
            # These are read off the data, and so have changed after training.
            if name not in ("location", "scale"):
                digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def floating_state(model: Model, prefix: str = "") -> dict[str, Tensor]:
    """Parameters and hyper-parameters by name, as they are in the model."""
    state = model.state_dict(prefix=prefix)
    return {name: tensor for name, tensor in state.items() if torch.is_floating_point(tensor)}
