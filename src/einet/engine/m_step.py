"""The M-step of an Einet (sec. 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import parametrize

from einet._memory import chunks
from einet.kernels.update import step_
from einet.layers import SumLayer

if TYPE_CHECKING:
    from einet.engine.passes import Passes
    from einet.engine.pseudo_counts import PseudoCounts
    from einet.engine.statistics import EinetStatistics

__all__ = ["check_canonical", "m_step", "update_log_weights"]


@torch.no_grad()
def m_step(
    model: Passes,
    statistics: EinetStatistics,
    step_size: float | Tensor = 1.0,
    prior: PseudoCounts | None = None,
) -> None:
    r"""Average the parameters with those that maximise the expected log-likelihood.

    With :math:`w^\text{mini} \propto w \sum n` (bounded below) and
    :math:`\phi^\text{mini} = \sum p_L T / \sum p_L`, every parameter moves to
    :math:`(1-\lambda)\,\cdot + \lambda\,\cdot^\text{mini}`. A sum or leaf that no row reached keeps
    what it had.

    The pseudo-counts of a ``prior`` join those of the rows, and every parameter then moves towards
    the maximum a posteriori. There is none for the class prior.
    """
    check_canonical(model)
    sums, leaves = (None, None) if prior is None else (prior.sums, prior.leaves)
    for layer, statistic in zip(model.circuit.sum_layers, statistics.weights, strict=True):
        update_weights(layer, statistic, step_size, sums)
    for block, statistic in zip(model.leaf.leaf_blocks, statistics.leaves, strict=True):
        block.update_(statistic, step_size, leaves)
    if model.num_classes > 1:
        update_log_weights(model.log_class_prior, statistics.classes, step_size)


def check_canonical(model: Passes) -> None:
    """Raise inside :func:`einet.unconstrained`, where an update in place would be lost."""
    if any(parametrize.is_parametrized(module) for module in model.modules()):
        raise RuntimeError("EM cannot update a model inside einet.unconstrained; leave it first")


def update_weights(
    layer: SumLayer,
    statistic: Tensor,
    step_size: float | Tensor,
    pseudo: float | Tensor | None = None,
) -> None:
    """The M-step of one layer's weights, given Σ ∂log P/∂w and the pseudo-count of each sum."""
    for w, n in zip(layer.simplices(layer.weight), layer.simplices(statistic), strict=True):
        for rows in chunks(len(w), "update", 8 * w.shape[-1] * w.shape[-2], w.device):
            step_(w[rows], w[rows] * n[rows], step_size, axis=-1, pseudo=pseudo)


@torch.no_grad()
def update_log_weights(
    log_weights: Float[Tensor, " parts"],
    counts: Float[Tensor, " parts"],
    step_size: float | Tensor = 1.0,
) -> None:
    """The M-step of a class prior or of a mixture's weights, in place.

    Args:
        log_weights: The logs of the probabilities, which are to be moved.
        counts: How often each part was expected.
        step_size: How far to move; 1 is all the way.
    """
    weights = log_weights.double().exp()
    step_(weights, counts.to(weights, copy=True), step_size, axis=-1)
    log_weights.copy_(torch.where(counts.sum() > 0, weights.log(), log_weights))
