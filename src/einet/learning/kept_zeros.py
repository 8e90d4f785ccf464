"""Weights that are exactly 0 stay so while EM goes on: what was pruned is not learnt again."""

from __future__ import annotations

import torch
from torch import Tensor

from einet.layers import SumLayer
from einet.models.base import Model

__all__ = ["KeptZeros"]


class KeptZeros:
    """The weights of a model that are 0, to be set back after each M-step.

    An M-step bounds all weights from below, and pseudo-counts add to all of them. Both are undone
    for weights that were 0 before, and the others of their sum are normalised again. After a whole
    M-step these are the maximum among weights with those zeros, each with the pseudo-count that it
    would have without them.

    Args:
        model: The model, before its first step.
    """

    @torch.no_grad()
    def __init__(self, model: Model) -> None:
        self.model = model
        self._layers: list[tuple[SumLayer, list[Tensor]]] = []
        for layer in model.modules():
            if isinstance(layer, SumLayer):
                zeros = [view == 0 for view in layer.simplices(layer.weight.detach())]
                if any(bool(zero.any()) for zero in zeros):
                    self._layers.append((layer, zeros))

    @torch.no_grad()
    def restore_(self) -> None:
        """Set them to 0 again, in place: recorded steps of a GPU go on with these tensors."""
        for layer, zeros in self._layers:
            views = layer.simplices(layer.weight.detach())
            for view, zero in zip(views, zeros, strict=True):
                view.masked_fill_(zero, 0.0)
                view /= view.sum(-1, keepdim=True)
