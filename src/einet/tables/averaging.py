"""Several models of the same rows, averaged: a mixture of models that were learnt apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float, Int

from einet._checks import as_int
from einet.models.base import Model
from einet.models.einet import Einet
from einet.models.mixture import Mixture

__all__ = ["average", "class_shares", "folds", "members_for"]

# As many members as read so many rows together, and no more than this.
_ROWS_OF_ALL, _MOST = 16_000, 8
# With fewer rows there are none to spare for validation, and no member spares more than this part.
_FEWEST_ROWS, _PART = 100, 8


def members_for(rows: int, members: int | None = None) -> int:
    """How many models of so many rows are averaged.

    Few rows leave much to chance: which of them a model learns from, and which of many maxima it
    finds. An average has less of it, and costs as many times the work, which is little for few
    rows.

    Args:
        rows: How many there are.
        members: The number of models, where it is given.

    Example:
        >>> members_for(300), members_for(4000), members_for(30_000)
        (8, 4, 1)
    """
    if members is not None:
        return as_int("members", members, minimum=1)
    if rows < _FEWEST_ROWS:
        return 1
    return int(np.clip(_ROWS_OF_ALL // rows, 1, _MOST))


def folds(rows: int, members: int, seed: int = 0) -> Iterator[Int[np.ndarray, " valid"] | None]:
    """For each member the rows that it is validated on, and does not learn from, ascending.

    These are an eighth of the rows, or less where there are more than eight members, and no row is
    among those of two: few members could not afford to share all rows out among themselves. A
    single member, and members of fewer than a hundred rows, choose for themselves: None.

    Example:
        >>> parts = list(folds(101, 4))
        >>> [len(part) for part in parts], len(set(np.concatenate(parts)))
        ([13, 13, 13, 13], 52)
    """
    if members == 1 or rows < _FEWEST_ROWS:
        yield from [None] * members
        return
    order = np.random.default_rng(seed).permutation(rows)
    for number in range(members):
        yield np.sort(order[number :: max(members, _PART)])


def average(
    members: int, rows: int, seed: int, learn: Callable[[int, np.ndarray | None], Einet]
) -> Model:
    r"""The average of models that were learnt from different parts of the same rows:

    .. math:: p(x) = \frac{1}{M} \sum_m p_m(x)

    It is a mixture like any other, of which every question has an exact answer.

    Args:
        members: M; with one it is that model.
        rows: How many rows there are to learn from.
        seed: Seed of the parts; member m has this seed plus m.
        learn: The model of a seed, validated on the given rows.
    """
    models = [
        learn(seed + number, valid) for number, valid in enumerate(folds(rows, members, seed))
    ]
    return models[0] if members == 1 else Mixture(models)


def class_shares(
    model: Model, z: Float[np.ndarray, "rows variables"]
) -> Float[np.ndarray, "rows classes"]:
    r"""The posterior probabilities of classes, each member's exact, averaged over members:

    .. math:: \sum_m w_m\, p_m(c \mid x)

    Members count alike in every row. In the mixture's own posterior they would count by
    :math:`p_m(x)`, which says who knows the row best, not who knows its class.

    Args:
        model: An Einet with classes, or a mixture of such.
        z: Encoded rows; NaN is missing.
    """
    rows = torch.from_numpy(z)
    parts = [(0.0, model)] if isinstance(model, Einet) else model.weighted_einets()
    shares = np.zeros(())
    for log_weight, einet in parts:
        assert isinstance(einet, Einet)
        posterior = einet.class_posterior(rows).double().numpy()
        shares = shares + np.exp(float(log_weight)) * posterior
    return shares / shares.sum(1, keepdims=True)
