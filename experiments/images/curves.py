"""What a training is given, and its curves in the units of all other numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import einet
from experiments.images.datasets import Parts
from experiments.images.settings import Settings
from experiments.images.structure import pixels_of

__all__ = ["model_rows", "on_scale", "stop_if"]


def model_rows(
    settings: Settings, parts: Parts, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Images for training and for validation as a model takes them."""
    pixels = pixels_of(settings, parts.train)
    rows = pixels.to_model(parts.train.tensor().to(device))
    if parts.valid is None:
        return rows, None
    return rows, pixels.to_model(parts.valid.tensor().to(device))


def on_scale(settings: Settings, parts: Parts, *histories: einet.History) -> dict[str, list[float]]:
    """Mean log-likelihoods of epochs, of all trainings one after the other."""
    shift = 0.0
    if settings.family == "gaussian":
        shift = parts.train.num_variables * math.log(255)
    train = [value for history in histories for value in history.train]
    valid = [value for history in histories for value in history.valid]
    curves = {"train": train, "valid": valid}
    return {name: [round(value + shift, 3) for value in curve] for name, curve in curves.items()}


def stop_if(stopped: str) -> None:
    if stopped == "interrupted":
        # The training took the Ctrl-C for itself; half a training is no result.
        raise KeyboardInterrupt
