"""Going on with fewer rows at a time, where a device has run out of memory."""

from __future__ import annotations

import warnings

import torch

from einet.engine import replay
from einet.engine.memory import halve_pieces
from einet.models.base import Model

__all__ = ["with_less"]


def with_less(model: Model, rows: int) -> bool:
    """Let fewer of these rows be in work at a time; whether that is possible."""
    fewer = halve_pieces(model, rows)
    if fewer is None:
        return False
    warnings.warn(
        f"einet ran out of memory on {model.device}, and goes on with at most {fewer} rows at a "
        "time; results stay the same",
        stacklevel=3,
    )
    replay.forget(model)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
    return True
