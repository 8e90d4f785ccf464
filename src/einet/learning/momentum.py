"""Momentum: an M-step on the expected statistics of recent mini-batches, older ones fading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from einet.engine.pseudo_counts import PseudoCounts
from einet.engine.statistics import EinetStatistics, MixtureStatistics, Statistics
from einet.learning.em_state import load_statistics, statistics_state
from einet.learning.learner import LearnerState
from einet.models.base import Model
from einet.models.einet import Einet
from einet.models.mixture import Mixture

__all__ = ["Fading"]


class Fading:
    r"""Sums over mini-batches t of which each counts β times as much as the one after it.

    .. math:: N \leftarrow \beta N + n^\text{mini}, \qquad w^\text{new} \propto N

    The parameters of an M-step are ratios of sums, so that a sum that has only begun needs no
    correction: its mini-batches have the shares that they should have from the first one on.

    Statistics of sums are ∂log P/∂w, for the weights of their time; what fades are the expected
    counts w ∂log P/∂w, which can be added whatever the weights have become.

    Args:
        model: The model that learns.
        momentum: β.
    """

    def __init__(self, model: Model, momentum: float) -> None:
        self.model, self.momentum = model, momentum
        self._sums: Statistics | None = None

    def step(
        self, statistics: Statistics, step_size: float, prior: PseudoCounts | None = None
    ) -> None:
        """Add a mini-batch, and move the model by a step towards the M-step of all of them.

        Args:
            statistics: Those of the mini-batch; they are taken over.
            step_size: λ.
            prior: The pseudo-counts of all training rows.
        """
        for weight, gradient in _weights(self.model, statistics):
            gradient *= weight
        if self._sums is not None:
            for total in self._sums.tensors():
                total *= self.momentum
            statistics = self._sums.add_(statistics)
        self._sums = statistics
        counts = None if prior is None else prior.for_rows(statistics.rows)
        pairs = list(_weights(self.model, statistics))
        expected = [count.clone() for _, count in pairs]
        for weight, count in pairs:
            count /= weight
            # A pruned weight has neither.
            count.masked_fill_(weight == 0, 0.0)
        self.model.m_step(statistics, step_size, counts)
        for (_, count), kept in zip(pairs, expected, strict=True):
            count.copy_(kept)

    def state(self) -> LearnerState:
        """The sums so far, for a checkpoint."""
        return statistics_state(self._sums)

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Take up what :meth:`state` told."""
        self._sums = load_statistics(self.model, values, tensors)

    def forget(self) -> None:
        """Begin anew with the next mini-batch."""
        self._sums = None


def _weights(model: Model, statistics: Statistics) -> Iterator[tuple[Tensor, Tensor]]:
    """The weights of every sum of a model, with the statistics that belong to them."""
    if isinstance(model, Einet) and isinstance(statistics, EinetStatistics):
        weights = (weight.detach() for weight in model.circuit.weights)
        yield from zip(weights, statistics.weights, strict=True)
    elif isinstance(model, Mixture) and isinstance(statistics, MixtureStatistics):
        for part, its in zip(model.models, statistics.components, strict=True):
            yield from _weights(part, its)
    else:
        raise TypeError(f"momentum is for an Einet or a Mixture, got {type(model).__name__}")
