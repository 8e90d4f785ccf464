"""EM and stochastic EM (sec. 3.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor

from einet.base import Model
from einet.learning.learner import Learner
from einet.learning.schedules import Schedule
from einet.learning.statistics import Statistics

__all__ = ["EM", "StochasticEM"]


class EM(Learner):
    """Full-batch EM: expected statistics of a whole epoch, then one M-step.

    The training log-likelihood never decreases.

    Example:
        >>> import einet
        >>> x = [[0, 1], [1, 0], [1, 0]]
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=2)
        >>> history = einet.fit(model, x, epochs=20, optimizer=einet.EM(), progress=False)
        >>> history.train[-1] >= history.train[0]
        True
    """

    def __init__(self) -> None:
        self._statistics: Statistics | None = None

    def step(
        self,
        model: Model,
        x: Any,
        observed: Any = None,
        *,
        labels: Any = None,
        weights: Any = None,
        progress: float = 0.0,
    ) -> Float[Tensor, ""]:
        rows = {"labels": labels, "weights": weights}
        if self._statistics is None:
            self._statistics = model.e_step(x, observed, **rows)
            return self._statistics.log_likelihood / self._statistics.rows
        # Counted from zero: differences of running sums would be NaN after a row of density 0.
        sums = (self._statistics.log_likelihood, self._statistics.rows)
        before = [total.clone() for total in sums]
        for total in sums:
            total.zero_()
        model.e_step(x, observed, into=self._statistics, **rows)
        mean = sums[0] / sums[1]
        for total, earlier in zip(sums, before, strict=True):
            total += earlier
        return mean

    def end_epoch(self, model: Model, progress: float) -> None:
        if self._statistics is not None and bool(self._statistics.rows > 0):
            model.m_step(self._statistics, 1.0)
            self._statistics.zero_()

    def finish(self, model: Model) -> None:
        self._statistics = None


class StochasticEM(Learner):
    r"""Stochastic EM: after every mini-batch, parameters move by a step λ towards its M-step.

    .. math:: w \leftarrow (1-\lambda) w + \lambda w^\text{mini}, \quad
              \phi \leftarrow (1-\lambda) \phi + \lambda \phi^\text{mini}

    Args:
        step_size: λ in (0, 1], or a schedule: a function from progress in [0, 1] to λ, such as
            :func:`einet.linear`.

    Example:
        >>> import einet
        >>> optimizer = einet.StochasticEM(step_size=einet.linear(0.5, 0.05))
    """

    def __init__(self, step_size: float | Schedule = 0.5) -> None:
        if not isinstance(step_size, Callable):
            _check_step_size(step_size)
        self.step_size = step_size

    def step(
        self,
        model: Model,
        x: Any,
        observed: Any = None,
        *,
        labels: Any = None,
        weights: Any = None,
        progress: float = 0.0,
    ) -> Float[Tensor, ""]:
        size = self.step_size_at(progress)
        return model.em_step(x, observed, labels=labels, weights=weights, step_size=size)

    def step_size_at(self, progress: float) -> float:
        size = self.step_size(progress) if callable(self.step_size) else self.step_size
        _check_step_size(size)
        return float(size)


def _check_step_size(value: float) -> None:
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"step_size must lie in (0, 1], got {value!r}")
