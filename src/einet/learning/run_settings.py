"""What tells one training run from another."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence, Sized
from typing import Any

from einet.data.streams import RowStream
from einet.learning.learner import Learner
from einet.models.base import Model

__all__ = ["differences", "settings_of", "structure_of"]


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


def differences(written: dict[str, Any], now: dict[str, Any]) -> str:
    """Which settings differ, in words; nothing where none does.

    Example:
        >>> differences({"seed": 1, "epochs": 5}, {"seed": 2, "epochs": 5})
        'seed was 1 and is 2'
        >>> differences({"optimizer": {"prior": None}}, {"optimizer": {"prior": 2.0}})
        'optimizer.prior was None and is 2.0'
    """
    differing = _differing(written, now, "")
    return "; ".join(
        f"{name} was {one!r:.200} and is {other!r:.200}" for name, one, other in differing
    )


def _differing(written: dict[str, Any], now: dict[str, Any], within: str) -> list[tuple]:
    """What differs: its name, what it was and what it is. Of settings within others, only those."""
    found = []
    for name in {**now, **written}:
        one, other = written.get(name), now.get(name)
        if _same(one, other):
            continue
        if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            found += _differing(one, other, f"{within}{name}.")
        else:
            found.append((f"{within}{name}", one, other))
    return found


def _same(one: Any, other: Any) -> bool:
    """Equal, up to rounding that may differ between devices."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other
