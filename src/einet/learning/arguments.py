"""Checks of what training is asked to do, and its rows as a stream: shared by all who train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch.nn.utils import parametrize

from einet._checks import as_device, check_choice, shown
from einet.data.sources import as_stream, in_memory
from einet.data.streams import Rows, RowStream, Transform
from einet.learning.defaults import BATCH_SIZE, Defaults
from einet.learning.learner import Learner, Objective
from einet.learning.report import Callback
from einet.models.base import Model

__all__ = [
    "as_callbacks",
    "as_hide",
    "as_learner",
    "as_streams",
    "check_trainable",
    "check_valid",
    "finisher",
]


def check_trainable(model: Any) -> None:
    """Raise unless this is a model whose parameters can be learnt now."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be an Einet or a Mixture, got {type(model).__name__}")
    if any(parametrize.is_parametrized(module) for module in model.modules()):
        raise ValueError("model is inside einet.unconstrained; leave that context before fit")


def as_learner(optimizer: Any, objective: Objective = "generative") -> Learner:
    """What a user gave as ``optimizer``, or the default."""
    check_choice("objective", objective, get_args(Objective))
    if optimizer is None:
        return Defaults().learner(objective)
    if not isinstance(optimizer, Learner):
        shown = optimizer.__name__ if isinstance(optimizer, type) else type(optimizer).__name__
        raise TypeError(
            "optimizer must be an einet.StochasticEM, EM or Gradient, such as "
            f"einet.Gradient(torch.optim.Adam, lr=0.01), got {shown}"
        )
    return optimizer


def as_hide(hide: Any) -> float:
    """A share of cells to hide."""
    if isinstance(hide, bool) or not isinstance(hide, (int, float)) or not 0 <= hide < 1:
        raise ValueError(f"hide must be a probability of at least 0 and below 1, got {shown(hide)}")
    return float(hide)


def as_callbacks(callbacks: Any) -> list[Callback]:
    """One function or several as a list."""
    if not callable(callbacks) and not isinstance(callbacks, Sequence):
        raise TypeError(
            f"callbacks must be functions of an einet.EpochReport, got {type(callbacks).__name__}"
        )
    calls = [callbacks] if callable(callbacks) else list(callbacks)
    for call in calls:
        if not callable(call):
            raise TypeError(
                f"callbacks must be functions of an einet.EpochReport, got {type(call).__name__}"
            )
    return calls


def finisher(finish: int, learner: Learner) -> Learner | None:
    """Full-batch EM with the prior of a learner, if it is asked for."""
    if not finish:
        return None
    last = learner.finisher()
    if last is None:
        raise ValueError(
            f"finish takes a StochasticEM to its end; optimizer is of {type(learner).__name__}"
        )
    return last


def check_valid(valid: Any, **others: Any) -> None:
    """Raise where something of the validation rows is given without them."""
    for name, value in others.items():
        if valid is None and value is not None:
            raise ValueError(f"{name} is given, but valid is not; give both or neither")


def _as_stream(
    model: Model,
    x: Any,
    observed: Any,
    labels: Any,
    weights: Any,
    transform: Transform | None,
    name: str,
    device: torch.device,
    columns: tuple[str, ...] | None,
    batch_size: int,
) -> RowStream:
    """Data for training; what is checked here need not be again for any mini-batch of them."""
    prefix = "valid_" if name == "valid" else ""
    x = in_memory(x, name)
    stream = as_stream(
        x, model.num_variables, model.num_classes, device, observed=observed, labels=labels,
        weights=weights, transform=transform, check=model.check_support, name=name,
        columns=columns, batch_size=batch_size,
    )  # fmt: skip
    if stream is not None:
        return stream
    # NaN is looked for part by part, and where the model is.
    batch = model.as_batch(
        x,
        observed,
        labels=labels,
        weights=weights,
        name=name,
        prefix=prefix,
        allow_empty=False,
        scan=False,
        device=None,
        columns=columns,
    )
    return Rows(batch, device, transform, model.check_support, name)


def as_streams(
    model: Model,
    train: Any,
    valid: Any,
    device: torch.device | str | None,
    transform: Transform | None,
    *,
    observed: Any,
    valid_observed: Any,
    labels: Any = None,
    valid_labels: Any = None,
    weights: Any = None,
    batch_size: int = BATCH_SIZE,
) -> tuple[RowStream, RowStream | None]:
    """Training and validation rows, on the device that the model is going to be moved to.

    They are checked before the model is touched.
    """
    there = model.device if device is None else as_device(device)
    given = (train, observed, labels, weights, transform)
    rows = _as_stream(model, *given, "train", there, model.columns, batch_size)
    if valid is None:
        return rows, None
    others = (valid, valid_observed, valid_labels, None, transform)
    # Those of the training rows, which the model is going to remember.
    return rows, _as_stream(model, *others, "valid", there, rows.columns, batch_size)
