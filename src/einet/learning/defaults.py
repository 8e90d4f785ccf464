"""What :func:`einet.fit` does where nothing is said: a rule of the data's size, in one place.

Einsum Networks of binary data have defaults of their own: those whose leaves are all Bernoulli, and
whose sums are over outer products. They were settled on validation rows of public data sets
(``experiments/table1/defaults.py``). ``docs/choose.md`` tells of the rule, ``docs/table1.md`` of
what it reaches. Linear sums, as those of hidden trees, are learnt as all else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from einet.families import Bernoulli
from einet.learning.em import StochasticEM
from einet.learning.gradient import Gradient
from einet.learning.learner import Learner, Objective
from einet.learning.prior import Prior
from einet.learning.schedules import linear
from einet.models.base import Model

__all__ = ["BATCH_SIZE", "EPOCHS", "Defaults", "defaults_for", "is_binary_einsum"]

#: Times to go through the training rows, and rows in a mini-batch.
EPOCHS, BATCH_SIZE = 25, 500
# λ of all models but those of binary data, at first and at last.
_FIRST_STEP, _LAST_STEP = 0.5, 0.05
# λ of binary ones: it falls to a tenth, and is small where there are many steps to make up for it.
_SMALL_STEP, _LAST_SHARE, _SUM_OF_STEPS = 0.1, 0.1, 50
# Where validation rows say when to stop, so many steps are allowed at least, and after so many
# epochs without a better result training ends.
_LEAST_STEPS, _PATIENCE = 500, 5
_PRIOR = Prior(sums=0.1, leaves=1.0)


@dataclass(frozen=True)
class Defaults:
    """What is done unless the user says otherwise.

    Attributes:
        epochs: How often to go through the training rows.
        patience: Epochs without a better validation result until training ends; None for none.
        first_step, last_step: λ of stochastic EM, which falls linearly from the one to the other.
        prior: Its prior.
        clusters: Whether latent variables start out as clusters of rows.

    Example:
        >>> Defaults().epochs, Defaults().learner().step_size_at(1.0)
        (25, 0.05)
    """

    epochs: int = EPOCHS
    patience: int | None = None
    first_step: float = _FIRST_STEP
    last_step: float = _LAST_STEP
    prior: Prior | None = None
    clusters: bool = False

    def learner(self, objective: Objective = "generative") -> Learner:
        """How to learn.

        Example:
            >>> type(Defaults().learner("discriminative")).__name__
            'Gradient'
        """
        if objective == "discriminative":
            return Gradient(torch.optim.Adam, lr=0.01)
        return StochasticEM(linear(self.first_step, self.last_step), self.prior)


def defaults_for(
    model: Model,
    rows: int | None,
    batch_size: int = BATCH_SIZE,
    *,
    epochs: int | None = None,
    has_patience: bool = False,
    validated: bool = False,
    objective: Objective = "generative",
) -> Defaults:
    """The rule.

    Args:
        model: The model.
        rows: How many training rows there are; None where nobody knows before.
        batch_size: The most rows in a mini-batch.
        epochs: How often the user wants to go through the rows, if that was said.
        has_patience: Whether the user has said when to stop.
        validated: Whether there are validation rows.
        objective: What is maximised.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(4, 2, 2), einet.Bernoulli(), num_sums=3)
        >>> many = defaults_for(model, rows=50_000, validated=True)
        >>> many.epochs, many.patience, many.first_step
        (25, 5, 0.1)
        >>> few = defaults_for(model, rows=1600, validated=True)
        >>> few.epochs, few.patience, few.first_step
        (125, 5, 0.1)
        >>> defaults_for(model, rows=1600).first_step  # 100 steps, and nobody says when to stop
        0.5
    """
    if objective == "discriminative" or not is_binary_einsum(model):
        return Defaults(EPOCHS if epochs is None else epochs)
    # Who says how long to train wants that, and no other end.
    patience = _PATIENCE if validated and epochs is None and not has_patience else None
    if rows is None:
        # A loader is gone through as often as was said; a prior would ask for one time more.
        return Defaults(EPOCHS if epochs is None else epochs, patience, clusters=True)
    each = max(1, math.ceil(rows / batch_size))
    if epochs is None:
        epochs = max(EPOCHS, math.ceil(_LEAST_STEPS / each)) if validated else EPOCHS
    first = min(_FIRST_STEP, max(_SMALL_STEP, _SUM_OF_STEPS / (epochs * each)))
    return Defaults(epochs, patience, first, _LAST_SHARE * first, _PRIOR, clusters=True)


def is_binary_einsum(model: Model) -> bool:
    """Whether all leaves of a model are Bernoulli, and its sums are over outer products.

    Example:
        >>> import einet
        >>> graph = einet.random_trees(2, depth=1, replicas=1)
        >>> is_binary_einsum(einet.Einet(graph, einet.Bernoulli(), num_sums=3))
        True
        >>> is_binary_einsum(einet.Einet(graph, einet.Bernoulli(), num_sums=3, sums="linear"))
        False
        >>> is_binary_einsum(einet.Einet(graph, [einet.Bernoulli(), einet.Gaussian()], num_sums=3))
        False
    """
    return all(
        part.sums == "einsum" and all(type(g.family) is Bernoulli for g in part.leaf.family_groups)
        for _, part in model.weighted_einets()
    )
