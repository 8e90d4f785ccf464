"""The M-step of an Einet (sec. 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from einet.families.simplex import floored_simplex
from einet.layers import LeafBlock, LeafStatistics, SumLayer

if TYPE_CHECKING:
    from einet.learning.statistics import EinetStatistics
    from einet.model import Einet

__all__ = ["RELATIVE_FLOOR", "m_step"]

#: No weight falls below this share of a uniform weight: the log-einsum-exp trick needs positive
#: weights, and float32 would take small ones to exactly 0.
RELATIVE_FLOOR = 1e-6

# Weights are updated in blocks that stay in a core's cache through all passes over them.
_CPU_BLOCK, _GPU_BLOCK = 1 << 16, 1 << 26


@torch.no_grad()
def m_step(model: Einet, statistics: EinetStatistics, step_size: float | Tensor = 1.0) -> None:
    r"""Average the parameters with those that maximise the expected log-likelihood.

    With :math:`w^\text{mini} \propto w \sum n` (bounded below) and
    :math:`\phi^\text{mini} = \sum p_L T / \sum p_L`, every parameter moves to
    :math:`(1-\lambda)\,\cdot + \lambda\,\cdot^\text{mini}`. A sum or leaf that no row reached keeps
    what it had.
    """
    for layer, statistic in zip(model.circuit.sum_layers, statistics.weights, strict=True):
        update_weights(layer, statistic, step_size)
    for block, statistic in zip(model.leaf.leaf_blocks, statistics.leaves, strict=True):
        update_leaves(block, statistic, step_size)
    if model.num_classes > 1 and bool(statistics.classes.sum() > 0):
        prior = model.log_class_prior.double().exp()
        target = floored_simplex(statistics.classes, RELATIVE_FLOOR / model.num_classes)
        model.log_class_prior.data.copy_(torch.lerp(prior, target, step_size).log())


def _block(tensor: Tensor) -> int:
    return _CPU_BLOCK if tensor.device.type == "cpu" else _GPU_BLOCK


def update_weights(layer: SumLayer, statistic: Tensor, step_size: float | Tensor) -> None:
    """The M-step of one layer's weights, given Σ ∂log P/∂w."""
    weight = layer.weight.data
    for w, n in zip(layer.simplices(weight), layer.simplices(statistic), strict=True):
        rows = max(1, _block(w) // (w.shape[-1] * w.shape[-2]))
        for start in range(0, w.shape[0], rows):
            old = w[start : start + rows]
            target = old * n[start : start + rows]
            old.lerp_(_normalise_(target, old), step_size)


def _normalise_(counts: Tensor, instead: Tensor) -> Tensor:
    """Expected counts to weights max(ε, n/τ) that add up to 1, in place; ``instead`` if all are 0.

    As ε is tiny, dividing by the total and clamping overshoots 1 by at most ``RELATIVE_FLOOR``;
    scaling by the overshoot and clamping again corrects that up to its square, and so on.
    (:func:`floored_simplex` solves the same equation for floors of any size.)
    """
    floor = RELATIVE_FLOOR / counts.shape[-1]
    total = counts.sum(-1, keepdim=True)
    counts.div_(total).clamp_(min=floor)
    for _ in range(2 if counts.dtype == torch.float64 else 1):
        counts.div_(counts.sum(-1, keepdim=True)).clamp_(min=floor)
    reached = total > 0
    return counts if bool(reached.all()) else torch.where(reached, counts, instead)


def update_leaves(block: LeafBlock, statistic: LeafStatistics, step_size: float | Tensor) -> None:
    """The M-step of one block's leaves, given Σ p_L and Σ p_L T(x)."""
    family = block.family
    stored = block.stored.data
    entries = max(1, _block(stored) // statistic.weighted[0].numel())
    for start in range(0, stored.shape[0], entries):
        some = slice(start, start + entries)
        old, total = stored[some], statistic.total[some].unsqueeze(-1)
        reached = total > 0
        phi = family.phi_of(old.double())
        mini = statistic.weighted[some] / total
        phi = torch.where(reached, torch.lerp(phi, mini, step_size), phi)
        new = family.project(family.store(phi)).to(old.dtype)
        old.copy_(torch.where(reached, new, old))
