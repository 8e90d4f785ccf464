"""Expected statistics of a part of an epoch as plain values and tensors, and back, checked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from einet.engine.statistics import EinetStatistics, MixtureStatistics, Statistics
from einet.learning.learner import LearnerState
from einet.learning.plain import as_fields
from einet.models.base import Model
from einet.models.einet import Einet
from einet.models.mixture import Mixture

__all__ = ["load_statistics", "no_rows", "statistics_state"]


def statistics_state(statistics: Statistics | None) -> LearnerState:
    """What :func:`load_statistics` makes statistics of again; None are those of no step."""
    if statistics is None:
        return {}, {}
    return {}, {name: tensor.clone() for name, tensor in _named(statistics).items()}


def load_statistics(
    model: Model, values: dict[str, Any], tensors: dict[str, Tensor]
) -> Statistics | None:
    """The statistics that :func:`statistics_state` told of, if they can be those of a model.

    Args:
        model: The model.
        values, tensors: What it told.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=2)
        >>> statistics = model.e_step([[0, 1], [1, 1]])
        >>> load_statistics(model, *statistics_state(statistics)).rows
        tensor(2., dtype=torch.float64)
    """
    as_fields(values, "learner", [])
    if not tensors:
        return None
    statistics = no_rows(model)
    named = _named(statistics)
    for name in {**named, **tensors}:
        if name not in named or name not in tensors:
            raise ValueError(f"learner.{name} is {'missing' if name in named else 'too much'}")
        _check(name, tensors[name], named[name])
    for name, own in named.items():
        own.copy_(tensors[name])
    for leaf in statistics.leaf_statistics():
        # Where leaves are counted from may still be moved before the first row.
        leaf.empty = not bool(statistics.rows > 0)
    return statistics


def no_rows(model: Model) -> Statistics:
    """Statistics of no rows, for any model."""
    if isinstance(model, Einet):
        return EinetStatistics.zeros(model)
    if not isinstance(model, Mixture):
        raise TypeError(f"model must be an Einet or a Mixture, got {type(model).__name__}")
    parts = [no_rows(each) for each in model.models]
    zero = torch.zeros(3, dtype=torch.float64, device=model.device)
    counts = zero.new_zeros(len(parts))
    return MixtureStatistics(zero[0], zero[1], zero[2], parts, counts)


def _named(statistics: Statistics) -> dict[str, Tensor]:
    """Every sum by its place, and where those of leaves are counted from."""
    origins = enumerate(leaf.origin for leaf in statistics.leaf_statistics())
    named = {f"sums.{number}": tensor for number, tensor in enumerate(statistics.tensors())}
    return named | {f"origins.{n}": origin for n, origin in origins if origin is not None}


def _check(name: str, tensor: Tensor, like: Tensor) -> None:
    if (tensor.shape, tensor.dtype) != (like.shape, like.dtype):
        raise ValueError(
            f"learner.{name} must be {like.dtype} of shape {list(like.shape)}, "
            f"got {tensor.dtype} of shape {list(tensor.shape)}"
        )
    # The first is the log-likelihood, which is −∞ after an impossible row.
    wrong = tensor.isnan() if name == "sums.0" else ~tensor.isfinite()
    if bool(wrong.any()):
        raise ValueError(f"learner.{name} must hold finite numbers")
