"""What :func:`einet.fit` does where nothing is said: a rule of the data's size, in one place.

Models of binary data, all of whose leaves are Bernoulli, have defaults of their own, settled on
validation rows of public data sets (``experiments/table1/defaults.py``). ``docs/choose.md`` tells
of the rule and of what it reaches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from einet.families import Bernoulli
from einet.learning.em import StochasticEM
from einet.learning.gradient import Gradient
from einet.learning.learner import Learner, Objective
from einet.learning.schedules import linear
from einet.models.base import Model

__all__ = ["BATCH_SIZE", "EPOCHS", "Defaults", "defaults_for", "is_binary"]

#: Times to go through the training rows, and rows in a mini-batch.
EPOCHS, BATCH_SIZE = 25, 500
# λ of a model of other than binary data: from random leaves there is a long way to go.
_FIRST_STEP, _LAST_STEP = 0.5, 0.05
# Steps of binary models, whose clusters are a good start: together they make up so many full ones,
# the first is within these bounds, and the last a tenth of it.
_FULL_STEPS, _LEAST_FIRST, _LAST_SHARE = 10.0, 0.1, 0.1
# Epochs without a better validation result until a binary model's training ends.
_PATIENCE = 5


@dataclass(frozen=True)
class Defaults:
    """What is done unless the user says otherwise.

    Attributes:
        first_step, last_step: λ of stochastic EM, which falls linearly from the one to the other.
        clusters: Whether latent variables start out as clusters of rows.
        patience: Epochs without a better validation result until training ends; None for none.

    Example:
        >>> Defaults(0.5, 0.05).learner().step_size_at(1.0)
        0.05
    """

    first_step: float = _FIRST_STEP
    last_step: float = _LAST_STEP
    clusters: bool = False
    patience: int | None = None

    def learner(self, objective: Objective = "generative") -> Learner:
        """How to learn.

        Example:
            >>> type(Defaults().learner("discriminative")).__name__
            'Gradient'
        """
        if objective == "discriminative":
            return Gradient(torch.optim.Adam, lr=0.01)
        return StochasticEM(linear(self.first_step, self.last_step))


def is_binary(model: Model) -> bool:
    """Whether all leaves of a model are Bernoulli.

    Example:
        >>> import einet
        >>> graph = einet.random_trees(2, depth=1, replicas=1)
        >>> is_binary(einet.Einet(graph, einet.Bernoulli(), num_sums=3))
        True
        >>> is_binary(einet.Einet(graph, [einet.Bernoulli(), einet.Gaussian()], num_sums=3))
        False
    """
    return all(
        type(group.family) is Bernoulli
        for _, part in model.weighted_einets()
        for group in part.leaf.family_groups
    )


def defaults_for(
    model: Model, rows: int | None, batch_size: int, epochs: int, objective: Objective
) -> Defaults:
    """The rule.

    Args:
        model: The model.
        rows: How many training rows there are; None where nobody knows before.
        batch_size: The most rows in a mini-batch.
        epochs: How often to go through the rows.
        objective: What is maximised.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(4, 2, 2), einet.Bernoulli(), num_sums=3)
        >>> defaults_for(model, 50_000, 500, 25, "generative").first_step
        0.1
        >>> defaults_for(model, 60, 500, 25, "generative").first_step  # 25 steps in all
        0.4
    """
    if objective == "discriminative" or not is_binary(model):
        return Defaults()
    if rows is None:
        return Defaults(clusters=True, patience=_PATIENCE)
    steps = epochs * math.ceil(rows / batch_size)
    first = min(_FIRST_STEP, max(_LEAST_FIRST, _FULL_STEPS / steps))
    return Defaults(first, _LAST_SHARE * first, clusters=True, patience=_PATIENCE)
