"""What a training is given, and its curves in the units of all other numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import einet
from einet.imaging.colour import to_ycocg_linear
from experiments.images.datasets import Parts
from experiments.images.settings import Settings
from experiments.images.structure import pixels_of

__all__ = ["model_rows", "on_scale", "stop_if", "valid_rows"]


def model_rows(
    settings: Settings, parts: Parts, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Images for training and for validation as a model takes them."""
    rows = pixels_of(settings, parts.train).to_model(parts.train.tensor().to(device))
    if parts.valid is None:
        return rows, None
    return rows, valid_rows(settings, parts.valid.tensor().to(device))


def valid_rows(settings: Settings, x: Tensor) -> Tensor:
    """Images for validation, in the numbers whose density is told in nats.

    A model learns whole numbers of brightness and differences, but nats are those of the numbers
    before they are rounded (:func:`einet.imaging.likelihood.log_density`), and so is the choice of
    the epoch. They are halves and quarters: float32 has them exactly.
    """
    return x if settings.colour == "rgb" else to_ycocg_linear(x).float()


def on_scale(settings: Settings, parts: Parts, *histories: einet.History) -> dict[str, list[float]]:
    """Mean log-likelihoods of epochs, of all trainings one after the other.

    Those of validation images are in the units of all other numbers. Those in training are, too,
    but where numbers were rounded for training: no shift turns one into the other, so that these
    have another name.
    """
    shift = 0.0
    if settings.family == "gaussian":
        shift = parts.train.num_variables * math.log(255)
    train = [value for history in histories for value in history.train]
    valid = [value for history in histories for value in history.valid]
    curves = {"train" if settings.colour == "rgb" else "train_rounded": train, "valid": valid}
    return {name: [round(value + shift, 3) for value in curve] for name, curve in curves.items()}


def stop_if(stopped: str) -> None:
    if stopped == "interrupted":
        # The training took the Ctrl-C for itself; half a training is no result.
        raise KeyboardInterrupt
