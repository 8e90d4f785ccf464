"""What becomes of the statistics of sum weights: added up, or turned into new weights at once.

A backward pass hands over the statistics of a few sums at a time. Stochastic EM on one mini-batch
needs each of them only once: used while they are in the cache, they save a tensor as large as the
weights and most of the memory traffic of an M-step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from einet.kernels.memory import scratch

__all__ = ["RELATIVE_FLOOR", "Collector", "Statistic", "Step", "collector", "step_"]

#: No weight falls below this share of a uniform weight: the log-einsum-exp trick needs positive
#: weights, and float32 would take small ones to exactly 0.
RELATIVE_FLOOR = 1e-6


@dataclass(frozen=True)
class Step:
    """Asks for weights to be moved by a step of stochastic EM.

    ``pseudo`` is the pseudo-count that a prior adds to every sum, spread evenly over its weights;
    None where there is no prior.
    """

    size: float | Tensor
    pseudo: float | Tensor | None = None

    def on(self, weight: Tensor) -> Tensor:
        """The size as a tensor beside the weights."""
        return _beside(weight, self.size)

    def pseudo_on(self, weight: Tensor) -> Tensor | None:
        """The pseudo-count as a tensor beside the weights."""
        return None if self.pseudo is None else _beside(weight, self.pseudo)


def _beside(weight: Tensor, number: float | Tensor) -> Tensor:
    if isinstance(number, Tensor):
        return number.to(weight.device)
    return torch.tensor(number, dtype=torch.float64, device=weight.device)


#: Where statistics go: added to a tensor shaped like the weights, into a step, or nowhere.
Statistic = Tensor | Step | None


class Collector:
    """Takes statistics: ``room`` for those of some sums, then ``done``; this one adds up.

    Where it is not ``fresh``, the room holds earlier statistics to add to; else nothing of meaning.
    """

    fresh = False

    def __init__(self, total: Tensor) -> None:
        self._total = total

    def room(self, rows: slice) -> Tensor:
        """Where to put the statistics of these rows of weights."""
        return self._total[rows]

    def done(self, rows: slice) -> None:
        """Called when they are complete and the weights are no longer needed."""


class _Stepper(Collector):
    """Moves weights as soon as their statistics are complete."""

    fresh = True

    def __init__(self, weight: Tensor, step: Step, axis: int) -> None:
        super().__init__(weight)
        self._weight, self._step, self._axis = weight, step, axis

    def room(self, rows: slice) -> Tensor:
        weight = self._weight[rows]
        self._total = scratch("statistic", weight.shape, weight)
        return self._total

    def done(self, rows: slice) -> None:
        weight = self._weight[rows]
        counts = self._total.mul_(weight)
        step_(weight, counts, self._step.size, self._axis, self._step.pseudo)


def collector(weight: Tensor, statistic: Statistic, axis: int) -> Collector | None:
    """The collector for one tensor of weights whose sums run over ``axis``."""
    if isinstance(statistic, Step):
        return _Stepper(weight, statistic, axis)
    return None if statistic is None else Collector(statistic)


def step_(
    weight: Tensor,
    counts: Tensor,
    step_size: float | Tensor,
    axis: int,
    pseudo: float | Tensor | None = None,
) -> None:
    r"""Move weights towards those with expected counts :math:`n`, in place; ``counts`` is consumed.

    The target is :math:`\max(\epsilon, n/\tau)` with τ such that it adds up to 1: the maximum of
    the expected log-likelihood among weights of at least ε. As ε is tiny, raising counts to ε times
    their total adds at most a share of ``RELATIVE_FLOOR`` to it, so that they then fall short of ε
    by as little; in float64 that is repeated until it is below rounding.
    (:func:`~einet.families.simplex.floored_simplex` solves the same equation for floors of any
    size.) Sums with no counts stay as they are.

    A symmetric Dirichlet prior adds ``pseudo`` to the counts of each sum, the same for every
    weight; a sum that no row has reached then moves towards equal weights.
    """
    if pseudo is not None:
        all_of_them = pseudo.to(counts) if isinstance(pseudo, Tensor) else pseudo
        counts += all_of_them / counts.shape[axis]
    floor = RELATIVE_FLOOR / counts.shape[axis]
    total = counts.sum(axis, keepdim=True)
    torch.maximum(counts, total * floor, out=counts)
    sums = counts.sum(axis, keepdim=True)
    for _ in range(2 if counts.dtype == torch.float64 else 0):
        torch.maximum(counts, sums * floor, out=counts)
        sums = counts.sum(axis, keepdim=True)
    counts /= sums
    reached = total > 0
    # On a GPU it is cheaper to choose everywhere than to wait for an answer.
    if weight.is_cuda or not bool(reached.all()):
        counts = torch.where(reached, counts, weight)
    weight.lerp_(counts, step_size.to(weight) if isinstance(step_size, Tensor) else step_size)
