"""The one shape in which every implementation is handed to the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["STEP_SIZE", "Subject", "Unsupported"]

STEP_SIZE = 0.05


@dataclass
class Subject:
    """A network ready to be measured.

    Every module of this package has `build(point, mode, data) -> Subject` and `version() -> str`;
    `data[rows, variables]` is on the device to be measured.

    Attributes:
        train: one training step on a batch.
        log_prob: the log-likelihoods of a batch.
        parameters: number of parameters of the distribution.
        precision: how products are computed.
        before_step: what must precede every training step but is no part of it (not timed).
        notes: what a reader of the row has to know.
    """

    train: Callable[[Tensor], object]
    log_prob: Callable[[Tensor], Tensor]
    parameters: int
    precision: str = "float32"
    before_step: Callable[[], object] | None = None
    notes: list[str] = field(default_factory=list)


class Unsupported(Exception):
    """The implementation has no equivalent of the point."""


def index_of(device: torch.device) -> torch.device:
    """A CUDA device with its index spelt out."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
