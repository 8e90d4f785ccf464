"""What learning maximises, row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor

from einet._checks import check_choice
from einet.data.batch import Batch
from einet.engine.root import join, log_sum
from einet.learning.learner import Learner, Objective
from einet.models.base import Model
from einet.models.einet import Einet

__all__ = ["check_objective", "objective_of", "row_weights", "weighted_mean"]


def objective_of(model: Model, batch: Batch, objective: Objective) -> Float[Tensor, " batch"]:
    """log p(x, c) of every row, or with ``"discriminative"`` log p(c | x); differentiable.

    For rows without a label the former is log p(x), and the latter 0: they say nothing of classes.
    """
    if objective == "generative":
        return model.log_prob(batch)
    if batch.labels is None:
        raise ValueError("objective 'discriminative' is of labels, but these rows have none")
    if not isinstance(model, Einet):
        raise TypeError(f"objective 'discriminative' is of an Einet, got {type(model).__name__}")
    # One pass has log p(x | c) of all classes: the label's own, and their sum.
    roots = model.class_roots(replace(batch, labels=None))
    joint = log_sum(join(roots, model.log_class_prior, batch.labels))
    marginal = log_sum(join(roots, model.log_class_prior))
    # Impossible rows have no classes; the difference of two infinities would be NaN.
    possible = (batch.labels >= 0) & (marginal > -torch.inf)
    return torch.where(possible, joint - torch.where(possible, marginal, 0.0), 0.0)


def row_weights(batch: Batch, objective: Objective) -> Float[Tensor, " batch"] | None:
    """How often each row counts; None where every row counts once."""
    if objective == "generative":
        return batch.weights
    assert batch.labels is not None
    known = (batch.labels >= 0).double()
    return known if batch.weights is None else known * batch.weights


def weighted_mean(
    values: Float[Tensor, " batch"], weights: Float[Tensor, " batch"] | None
) -> Float[Tensor, ""]:
    """The mean over rows, each counted as often as it weighs; 0 where none does."""
    if weights is None:
        return values.mean()
    share = weights.to(values)
    return (values * share).sum() / share.sum().clamp(min=torch.finfo(values.dtype).tiny)


def check_objective(objective: Objective, model: Model, learner: Learner, labelled: bool) -> None:
    """Raise unless a model can be learnt by a learner with this objective."""
    check_choice("objective", objective, get_args(Objective))
    if objective not in learner.objectives:
        raise ValueError(
            f"objective {objective!r} cannot be learnt by {type(learner).__name__}; "
            "einet.Gradient(torch.optim.Adam, lr=0.01) can"
        )
    if objective == "discriminative" and (model.num_classes < 2 or not labelled):
        raise ValueError(
            "objective 'discriminative' is of labels: it needs a model with num_classes > 1, which "
            f"has {model.num_classes}, and labels, which are {'' if labelled else 'not '}given"
        )
