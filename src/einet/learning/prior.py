"""Conjugate priors on sum weights and leaves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from einet._checks import shown
from einet.data.batch import Batch
from einet.data.streams import RowStream
from einet.engine.pseudo_counts import PseudoCounts, leaf_centres
from einet.families import Bernoulli, Categorical
from einet.layers import FamilyGroup, LeafPrior
from einet.models.base import Model

__all__ = ["Prior"]

# As much as the weights of all rows may add up to.
_MOST = 1 << 53


@dataclass(frozen=True)
class Prior:
    r"""A conjugate prior, under which EM finds maxima a posteriori instead of overfitting.

    Every sum has a symmetric Dirichlet prior that counts like ``sums`` further rows, spread evenly
    over its n weights, and every leaf density one that counts like ``leaves`` further rows at the
    overall expectation parameters :math:`\phi_0` of its variable, the mean of T(x) over the
    training rows:

    .. math:: w_k \propto n_k + \frac{\alpha}{n}, \qquad
              \phi = \frac{\sum p_L T(x) + \beta\,\phi_0}{\sum p_L + \beta}

    Both are on the scale of the whole training set; a mini-batch gets its share of them. A sum that
    no row reaches moves towards equal weights. Where a variable is never observed the prior of its
    leaves has no effect. There is none for the class prior and the weights of a
    :class:`~einet.Mixture`.

    Args:
        sums: α, the pseudo-count of each sum.
        leaves: β, the pseudo-count of each leaf density.
        states: β of leaves over states (Bernoulli, Categorical), where it is another one. A state
            that few rows reach needs some for states it has not met; a density about numbers is
            widened by as many.

    Example:
        >>> import einet, torch
        >>> x = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
        >>> model = einet.Einet(einet.random_trees(2, 0, 1), einet.Bernoulli(), num_sums=1)
        >>> optimizer = einet.EM(prior=einet.Prior(sums=1.0, leaves=2.0))
        >>> history = einet.fit(model, x, epochs=3, optimizer=optimizer, progress=False)
        >>> model.mean()
        tensor([1.0000, 0.5000])
    """

    sums: float | int = 0.0
    leaves: float | int = 0.0
    states: float | int | None = None

    def __post_init__(self) -> None:
        for name in ("sums", "leaves", "states"):
            value = getattr(self, name)
            if name == "states" and value is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value < math.inf:
                raise ValueError(
                    f"{name} must be a finite number of at least 0, got {shown(value)}"
                )
            if value > _MOST:
                raise ValueError(
                    f"{name} must be at most 2**53, beyond which rows would not count beside it, "
                    f"got {shown(value)}"
                )

    @property
    def flat(self) -> bool:
        """Whether it changes nothing.

        Example:
            >>> import einet
            >>> einet.Prior().flat, einet.Prior(leaves=1.0).flat
            (True, False)
        """
        return self.sums == 0 and self.leaves == 0 and not self.states

    def pseudo_counts(
        self, model: Model, x: Any, observed: Any = None, *, weights: Any = None
    ) -> PseudoCounts:
        """What this prior adds to the expected statistics of these rows.

        Args:
            model: The model, its leaves already set from data: φ₀ is in the units of its families.
            x, observed, weights: All the training rows; as in ``model.e_step``.

        Example:
            >>> import einet
            >>> x = [[0, 1], [1, 1]]
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> counts = einet.Prior(sums=1.0, leaves=2.0).pseudo_counts(model, x)
            >>> model.m_step(model.e_step(x), prior=counts)
            >>> model.log_prob([[0, 0]]).isfinite().item()  # it never met this row
            True
        """
        if not isinstance(model, Model):
            raise TypeError(f"model must be an Einet or a Mixture, got {type(model).__name__}")
        batch = model.as_batch(x, observed, weights=weights, allow_empty=False, device=None)
        if (self.leaves > 0 or self.states) and not isinstance(x, Batch):
            model.check_support(batch, "x")
        return self.of_rows(model, [batch])

    def of_rows(self, model: Model, rows: Iterable[Batch]) -> PseudoCounts:
        """:meth:`pseudo_counts` for all the training rows in parts, which have been checked.

        Args:
            model: The model, its leaves already set from data.
            rows: The parts.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> parts = [model.as_batch(rows) for rows in ([[0, 1], [1, 1]], [[0, 0]])]
            >>> einet.Prior(sums=1.0).of_rows(model, parts).rows
            3.0
        """
        if self.leaves > 0 or self.states:
            centres, total = leaf_centres(model, rows)
            leaves = self._of_leaves(centres)
        else:
            total = sum(float(len(b) if b.weights is None else b.weights.sum()) for b in rows)
            if isinstance(rows, RowStream):
                weight = torch.tensor(total, dtype=torch.float64)
                rows.joint_([weight])
                total = float(weight)
            leaves = None
        if not total > 0:
            raise ValueError("weights must not be 0 throughout")
        return PseudoCounts(float(self.sums) if self.sums > 0 else None, leaves, total)

    def _of_leaves(self, centres: Mapping[FamilyGroup, Tensor]) -> LeafPrior:
        """β of every leaf: one number for all, and its multiples in what lies at each centre."""
        if self.states is None:
            return LeafPrior(float(self.leaves), centres)
        count = float(self.leaves if self.leaves > 0 else self.states)
        times = {True: self.states / count, False: self.leaves / count}
        return LeafPrior(
            count,
            {
                group: centre * times[isinstance(group.family, Bernoulli | Categorical)]
                for group, centre in centres.items()
            },
        )

    def settings(self) -> dict[str, float]:
        """Plain values that tell this prior from others.

        Example:
            >>> import einet
            >>> einet.Prior(sums=1.0, leaves=0.5).settings()
            {'sums': 1.0, 'leaves': 0.5}
        """
        settings = {"sums": float(self.sums), "leaves": float(self.leaves)}
        return settings if self.states is None else {**settings, "states": float(self.states)}
