"""Pruning: a model without the weights that its rows hardly use."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from einet._checks import as_number
from einet.engine.statistics import EinetStatistics
from einet.layers import MixingLayer, SumLayer
from einet.models.base import Model
from einet.models.einet import Einet

__all__ = ["Pruned", "prune"]

# Among weights that no row uses, the larger ones count for more: as if one row in a million did.
_UNUSED = 1e-6


@dataclass(frozen=True)
class Pruned:
    r"""What :func:`prune` made, and what it cost.

    Attributes:
        model: The new model.
        kept: How many weights of its sums are not 0. Mixing weights, which are never dropped, are
            not counted.
        of: How many were not 0 before.
        dropped_flow: How many of the dropped weights a row was expected to use, in the mean.
        before: The mean log-likelihood of the rows under the model as it was.
        after: That under the new model.

    Example:
        >>> import einet, torch
        >>> x = torch.randint(0, 2, (200, 4), generator=torch.manual_seed(0)).float()
        >>> model = einet.Einet(einet.random_trees(4, 2, 1), einet.Bernoulli(), num_sums=4)
        >>> history = einet.fit(model, x, epochs=5, progress=False)
        >>> pruned = einet.prune(model, x, keep=0.5)
        >>> pruned.kept < pruned.of, pruned.of
        (True, 144)
        >>> pruned.fall == pruned.before - pruned.after
        True
    """

    model: Einet
    kept: int
    of: int
    dropped_flow: float
    before: float
    after: float

    @property
    def fall(self) -> float:
        """By how much the mean log-likelihood of the rows fell; below 0 if it rose.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=2)
            >>> einet.prune(model, [[0, 1]], keep=1.0).fall
            0.0
        """
        return self.before - self.after


@torch.no_grad()
def prune(model: Model, rows: Any, keep: float | int) -> Pruned:
    r"""The model without the weights of sums that rows use least.

    How much a row uses a weight is the probability that it is on the way from the root to the
    leaves, given the row: its flow :math:`w\,\partial \log p(x) / \partial w`, which EM counts,
    too. The weights with the smallest flows over all rows become 0 and the others of their sums are
    normalised. So what is left is a distribution, and with f(x) the flows of dropped weights for a
    row x together,

    .. math:: \log p_\text{pruned}(x) \ge \log p(x) + \log(1 - f(x)) \quad \text{if } f(x) < 1:

    without its dropped weights a row keeps the share of its ways that use none of them, and
    normalising only adds to it.

    Every sum keeps its most used weight, and every entry of its children the sum that uses it
    most, so that no state is left without a way. These may be more than ``keep`` asks for.

    **Learning on.** Under :class:`~einet.EM` and :class:`~einet.StochasticEM` a weight that is 0
    stays 0, also with a prior, whose pseudo-counts go to the other weights of a sum. Gradients do
    not know of zeros: :func:`einet.unconstrained` raises all weights to a tiny share, and so do
    ``model.em_step`` and ``model.m_step`` where they are called without a learner.
    :func:`einet.grow` keeps zeros, too: prune, grow, learn, and again.

    Speed stays the same, as sums compute with zeros as with other numbers. Files of such models
    are smaller.

    Args:
        model: The model, which stays as it is.
        rows: What is to remain likely: training rows, say, in any form that ``model.log_prob``
            takes.
        keep: The share of weights to keep, of those that are not 0 yet; above 0, at most 1.

    Returns:
        The new model, how many weights it has, and how likely rows were and are.

    Example:
        >>> import einet, torch
        >>> x = torch.randint(0, 2, (200, 4), generator=torch.manual_seed(0)).float()
        >>> model = einet.Einet(einet.random_trees(4, 2, 1), einet.Bernoulli(), num_sums=4)
        >>> history = einet.fit(model, x, epochs=5, progress=False)
        >>> pruned = einet.prune(model, x, keep=0.75)
        >>> larger = einet.grow(pruned.model, num_sums=8)  # the same distribution
        >>> history = einet.fit(larger, x, epochs=5, progress=False)
    """
    if not isinstance(model, Einet):
        raise TypeError(f"model must be an Einet, got {type(model).__name__}")
    share = as_number("keep", keep, at_least=0, at_most=1)
    if share == 0:
        raise ValueError("keep must be above 0, got 0")
    statistics = model.e_step(rows)
    assert isinstance(statistics, EinetStatistics)
    number = float(statistics.rows)
    if not number > 0 or float(statistics.impossible):
        raise ValueError(
            "rows must be some, all of them possible under the model, got a total weight of "
            f"{number:g} and {int(statistics.impossible)} impossible ones"
        )
    pruned = deepcopy(model)
    layers = [
        (layer, new, _flows(layer, gradient))
        for layer, new, gradient in zip(
            model.circuit.sum_layers, pruned.circuit.sum_layers, statistics.weights, strict=True
        )
        if not isinstance(layer, MixingLayer)
    ]
    least = _least([flow[layer.weight > 0] for layer, _, flow in layers], share)
    kept = of = 0
    dropped = 0.0
    for layer, new, flow in layers:
        there = layer.weight.detach() > 0
        stays = _stays(flow, least) & there
        kept, of = kept + int(stays.sum()), of + int(there.sum())
        weight = layer.weight.detach().double()
        dropped += float((flow - _UNUSED * weight).masked_fill(stays, 0.0).sum())
        if bool((there & ~stays).any()):
            weight = weight.masked_fill(~stays, 0.0)
            new.weight.copy_(weight / weight.sum(-1, keepdim=True))
    before = float(statistics.log_likelihood) / number
    after = pruned.e_step(rows) if kept < of else statistics
    return Pruned(
        pruned, kept, of, dropped / number, before, float(after.log_likelihood) / float(after.rows)
    )


def _flows(layer: SumLayer, gradient: Tensor) -> Float[Tensor, "L K inputs"]:
    """How often rows are expected to use each weight, and a little of its size."""
    weight = layer.weight.detach().double()
    return weight * (gradient.double() + _UNUSED)


def _least(flows: list[Tensor], share: float) -> float:
    """The smallest flow that is kept."""
    together = torch.cat(flows)
    if not len(together):
        return 0.0
    count = min(len(together), max(1, math.ceil(share * len(together))))
    return float(together.kthvalue(len(together) - count + 1).values)


def _stays(flow: Float[Tensor, "L K inputs"], least: float) -> Bool[Tensor, "L K inputs"]:
    """Which weights stay, by their flows."""
    best_of_sum = flow == flow.amax(-1, keepdim=True)
    best_of_entry = flow == flow.amax(-2, keepdim=True)
    return (flow >= least) | best_of_sum | best_of_entry
