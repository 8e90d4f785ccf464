"""EM and stochastic EM (sec. 3.5)."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet._checks import as_step_size
from einet.data.batch import Batch
from einet.engine.pseudo_counts import PseudoCounts
from einet.engine.statistics import Statistics
from einet.learning.em_state import load_statistics, statistics_state
from einet.learning.kept_zeros import KeptZeros
from einet.learning.learner import Learner, LearnerState, Objective
from einet.learning.momentum import Fading
from einet.learning.prior import Prior
from einet.learning.schedules import Schedule
from einet.models.base import Model

__all__ = ["EM", "StochasticEM"]


class _WithPrior(Learner):
    """A learner that may have a prior: it gets its scale and place from the training rows."""

    stateless = True

    def __init__(self, prior: Prior | None) -> None:
        if prior is not None and not isinstance(prior, Prior):
            raise TypeError(f"prior must be an einet.Prior or None, got {type(prior).__name__}")
        self.prior = None if prior is None or prior.flat else prior
        self._counts: PseudoCounts | None = None
        self._zeros: KeptZeros | None = None

    def start(
        self,
        model: Model,
        rows: Iterable[Batch] | None = None,
        objective: Objective = "generative",
    ) -> None:
        self._counts = self._zeros = None
        if self.prior is not None and rows is not None:
            self._counts = self.prior.of_rows(model, rows)

    def finish(self, model: Model) -> None:
        self._counts = self._zeros = None

    def _zeros_of(self, model: Model) -> KeptZeros:
        """The weights that are 0 before the first step, and stay so."""
        if self._zeros is None or self._zeros.model is not model:
            self._zeros = KeptZeros(model)
        return self._zeros

    def _pseudo_counts(self) -> PseudoCounts | None:
        """Those of all training rows; None without a prior."""
        if self.prior is not None and self._counts is None:
            raise RuntimeError(
                "prior has to know the training rows: call start(model, rows) before step, or let "
                "einet.fit do both"
            )
        return self._counts


class EM(_WithPrior):
    """Full-batch EM: expected statistics of a whole epoch, then one M-step.

    The training log-likelihood never decreases; with a prior, the sum of that and the prior's log
    density does not (see :meth:`PseudoCounts.log_density`).

    Args:
        prior: Pseudo-counts for sums and leaves; none by default.

    Example:
        >>> import einet
        >>> x = [[0, 1], [1, 0], [1, 0]]
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=2)
        >>> history = einet.fit(model, x, epochs=20, optimizer=einet.EM(), progress=False)
        >>> history.train[-1] >= history.train[0]
        True
    """

    def __init__(self, prior: Prior | None = None) -> None:
        super().__init__(prior)
        self._statistics: Statistics | None = None

    def step(self, model: Model, batch: Any, progress: float = 0.0) -> Float[Tensor, ""]:
        self._pseudo_counts()
        if self._statistics is None:
            self._statistics = model.e_step(batch)
            return _mean(self._statistics)
        # Counted from zero: differences of running sums would be NaN after a row of density 0.
        sums = (self._statistics.log_likelihood, self._statistics.rows)
        before = [total.clone() for total in sums]
        for total in sums:
            total.zero_()
        model.e_step(batch, into=self._statistics)
        mean = _mean(self._statistics)
        for total, earlier in zip(sums, before, strict=True):
            total += earlier
        return mean

    def end_epoch(self, model: Model, progress: float) -> None:
        if self._statistics is not None and not self.team.alone:
            self._statistics.all_reduce_(self.team)
        if self._statistics is not None and bool(self._statistics.rows > 0):
            counts = self._pseudo_counts()
            if counts is not None:
                counts = counts.for_rows(float(self._statistics.rows))
            zeros = self._zeros_of(model)
            model.m_step(self._statistics, 1.0, counts)
            zeros.restore_()
            self._statistics.zero_()
        if not self.team.alone:
            # Anew from the next means: a process without rows could not tell where others count.
            self._statistics = None

    def begin_epoch_anew(self) -> None:
        if self._statistics is not None:
            self._statistics.zero_()

    @property
    def joins(self) -> bool:
        # A subclass need not know that there are others.
        return type(self).step is EM.step and type(self).end_epoch is EM.end_epoch

    def finish(self, model: Model) -> None:
        super().finish(model)
        self._statistics = None

    def state_within(self) -> LearnerState | None:
        # What a subclass does at the end of an epoch, nobody knows.
        if type(self).end_epoch is not EM.end_epoch:
            return None
        if self._statistics is None or self.team.alone:
            return statistics_state(self._statistics)
        # What all processes have summed up; each goes on with its own.
        return statistics_state(deepcopy(self._statistics).all_reduce_(self.team))

    def load_state_within(
        self, model: Model, values: dict[str, Any], tensors: dict[str, Tensor]
    ) -> None:
        self._statistics = load_statistics(model, values, tensors)


class StochasticEM(_WithPrior):
    r"""Stochastic EM: after every mini-batch, parameters move by a step λ towards its M-step.

    .. math:: w \leftarrow (1-\lambda) w + \lambda w^\text{mini}, \quad
              \phi \leftarrow (1-\lambda) \phi + \lambda \phi^\text{mini}

    Args:
        step_size: λ in (0, 1], or a schedule: a function from progress in [0, 1] to λ, such as
            :func:`einet.linear`.
        prior: Pseudo-counts for sums and leaves; none by default. A mini-batch gets its share of
            them, so that their strength does not depend on the batch size.
        momentum: β in [0, 1): the M-step is that of all mini-batches so far, each with β times the
            weight of the one after it, as if batches were 1 / (1 − β) times as large. It costs
            memory for the statistics, as much as the parameters take, or more.

    Example:
        >>> import einet
        >>> optimizer = einet.StochasticEM(step_size=einet.linear(0.5, 0.05))
        >>> smooth = einet.StochasticEM(step_size=0.2, momentum=0.9)
    """

    def __init__(
        self,
        step_size: float | Schedule = 0.5,
        prior: Prior | None = None,
        momentum: float = 0.0,
    ) -> None:
        super().__init__(prior)
        self.step_size = step_size if callable(step_size) else _as_float(step_size)
        self.momentum = _as_momentum(momentum)
        self.stateless = not self.momentum
        self._fading: Fading | None = None

    def start(
        self,
        model: Model,
        rows: Iterable[Batch] | None = None,
        objective: Objective = "generative",
    ) -> None:
        super().start(model, rows, objective)
        self._fading = Fading(model, self.momentum) if self.momentum else None

    def finish(self, model: Model) -> None:
        super().finish(model)
        self._fading = None

    def begin_epoch_anew(self) -> None:
        if self._fading is not None:
            self._fading.forget()

    def step(self, model: Model, batch: Any, progress: float = 0.0) -> Float[Tensor, ""]:
        zeros = self._zeros_of(model)
        mean = self._step(model, batch, self.step_size_at(progress))
        zeros.restore_()
        return mean

    def _step(self, model: Model, batch: Any, size: float) -> Float[Tensor, ""]:
        counts = self._pseudo_counts()
        if self.momentum:
            return self._smooth_step(model, batch, size)
        if not self.team.alone:
            return self._joint_step(model, batch, size)
        if counts is None:
            return model.em_step(batch, step_size=size)
        batch = model.as_batch(batch)
        # A sum of weights stays on the device: reading it would wait for a GPU in every step.
        rows = float(len(batch)) if batch.weights is None else batch.weights.sum()
        return model.em_step(batch, step_size=size, prior=counts.for_rows(rows))

    def _smooth_step(self, model: Model, batch: Any, size: float) -> Float[Tensor, ""]:
        """A step on the statistics of recent mini-batches, those of all processes."""
        if self._fading is None or self._fading.model is not model:
            self._fading = Fading(model, self.momentum)
        statistics = model.e_step(batch, team=self.team)
        mean, counts = _mean(statistics), self._pseudo_counts()
        self._fading.step(statistics, size, counts)
        return mean

    def _joint_step(self, model: Model, batch: Any, size: float) -> Float[Tensor, ""]:
        """The same step in all processes, from the rows of all of them."""
        statistics, counts = model.e_step(batch, team=self.team), self._pseudo_counts()
        if counts is not None:
            counts = counts.for_rows(statistics.rows)
        model.m_step(statistics, size, counts)
        return _mean(statistics)

    @property
    def joins(self) -> bool:
        return type(self).step is StochasticEM.step

    @property
    def stackable(self) -> bool:
        # What a subclass does in its own step, nobody can do for several models.
        return type(self).step is StochasticEM.step and not self.momentum

    def finisher(self) -> EM:
        return EM(self.prior)

    def settings(self) -> dict[str, Any]:
        # Without it a run that an earlier release has begun would not be gone on with.
        return super().settings() | ({"momentum": self.momentum} if self.momentum else {})

    def state(self) -> LearnerState:
        if not self.momentum:
            return super().state()
        return ({}, {}) if self._fading is None else self._fading.state()

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        if self._fading is None:
            super().load_state(values, tensors)
        else:
            self._fading.load_state(values, tensors)

    def step_size_at(self, progress: float) -> float:
        size = self.step_size(progress) if callable(self.step_size) else self.step_size
        return _as_float(size)


def _mean(statistics: Statistics) -> Float[Tensor, ""]:
    """The mean log-likelihood; 0 of no rows, which a process may have where others have some."""
    there = statistics.rows > 0
    return torch.where(there, statistics.log_likelihood / statistics.rows, 0.0)


def _as_momentum(momentum: Any) -> float:
    is_number = isinstance(momentum, int | float) and not isinstance(momentum, bool)
    if not is_number or not 0 <= momentum < 1:
        raise ValueError(f"momentum must be at least 0 and below 1, got {momentum!r}")
    return float(momentum)


def _as_float(step_size: Any) -> float:
    return float(as_step_size(step_size))
