"""Einets of one structure as one, so that every kernel works on all of them: a component axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from einet._checks import as_step_size
from einet.data.batch import Batch
from einet.engine import replay
from einet.engine.passes import Layers
from einet.engine.pseudo_counts import PseudoCounts
from einet.engine.values import Expectation
from einet.kernels.streams import Beside
from einet.kernels.update import Step
from einet.layers import LeafPrior
from einet.models.einet import Einet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["SideBySide", "stacked"]


class SideBySide(Layers):
    """Several Einets of one structure and one class that learn at the same time, each from its own.

    A layer holds the sums of all of them: what keeps a GPU busy for microseconds with one Einet is
    worth launching with many. Row b of a batch is one row for each, side by side, and
    ``weights[b, c]`` says how often it counts for Einet c; 0 where that has no row left. A step
    does for each Einet what ``em_step`` on its own rows does.

    Args:
        like: An Einet of this structure, on the same device and of the same type.
        count: The number of Einets.

    Example:
        >>> import einet
        >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
        >>> models = [einet.Einet(graph, einet.Gaussian(), 3, seed=seed) for seed in range(2)]
        >>> both = SideBySide(models[0], count=2)
        >>> for number, model in enumerate(models):
        ...     both.take(number, model)
        >>> rows = torch.randn(5, 2, 2, generator=torch.manual_seed(0))
        >>> sums = both.step(stacked(Batch(rows.flatten(0, 1)), torch.ones(5, 2).double()), 0.5)
        >>> torch.allclose(sums[0, 1], models[1].log_prob(rows[:, 1]).double().sum())
        True
    """

    def __init__(self, like: Einet, count: int) -> None:
        super().__init__()
        if like.num_classes != 1:
            raise ValueError(f"Einets side by side have one class each, got {like.num_classes}")
        self.count, self.num_leaves, self.num_classes = count, like.num_leaves, 1
        # Tensors made in inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad():
            self.leaf = like.leaf.repeated(count)
            self.circuit = like.circuit.repeated(count)
            self.register_buffer("log_class_prior", like.log_class_prior.detach().clone())
            self.to(device=like.device, dtype=like.dtype)
            for number in range(count):
                self.take(number, like)

    def _pairs(self, number: int, model: Einet) -> Iterator[tuple[Tensor, Tensor]]:
        """All numbers of one of the Einets, here and in a model of its own."""
        count = self.count
        for layers, layer in zip(self.circuit.sum_layers, model.circuit.sum_layers, strict=True):
            here, there = layers.simplices(layers.weight), layer.simplices(layer.weight)
            for of_all, of_one in zip(here, there, strict=True):
                yield of_all[number::count], of_one
        for blocks, block in zip(self.leaf.leaf_blocks, model.leaf.leaf_blocks, strict=True):
            yield blocks.of_copy(number, count), block.by_leaf
        for groups, group in zip(self.leaf.family_groups, model.leaf.family_groups, strict=True):
            yield from zip(groups.of_copy(number, count), group.raw_hyper.values(), strict=True)

    @torch.no_grad()
    def take(self, number: int, model: Einet) -> None:
        """Take the parameters of a model as those of one of the Einets, in place."""
        self.circuit.precision = model.precision
        for own, other in self._pairs(number, model):
            own.copy_(other)

    @torch.no_grad()
    def give(self, number: int, model: Einet) -> None:
        """Copy the parameters of one of the Einets to a model, in place."""
        for own, other in self._pairs(number, model):
            other.copy_(own)

    @torch.no_grad()
    def soundness(self) -> Float[Tensor, " count"]:
        """A sum of the parameters of each Einet (float64): NaN if one of them is."""
        total = self.log_class_prior.new_zeros(self.count, dtype=torch.float64)
        for layer in self.circuit.sum_layers:
            for weights in layer.simplices(layer.weight):
                total += weights.double().flatten(1).sum(1).view(-1, self.count).sum(0)
        for block in self.leaf.leaf_blocks:
            for number in range(self.count):
                total[number] += block.of_copy(number, self.count).double().sum()
        return total

    def pseudo_counts(self, each: Sequence[PseudoCounts], models: Sequence[Einet]) -> PseudoCounts:
        """Those of some Einets, beginning with the first, for all: the same prior, other rows.

        Leaves of the Einets behind them have no prior.
        """
        first, leaves = each[0], None
        if first.leaves is not None:
            centres = {}
            groups = zip(*(model.leaf.family_groups for model in models), strict=True)
            for own, other in zip(self.leaf.family_groups, groups, strict=True):
                known = [
                    counts.leaves.at(group)
                    for counts, group in zip(each, other, strict=True)
                    if counts.leaves is not None
                ]
                none = [torch.zeros_like(known[0])] * (self.count - len(known))
                centres[own] = torch.cat([*known, *none])
            leaves = LeafPrior(first.leaves.count, centres)
        return PseudoCounts(first.sums, leaves, 1.0)

    def step(
        self, batch: Batch, step_size: float | Tensor, prior: PseudoCounts | None = None
    ) -> Float[Tensor, "2 count"]:
        """A step of stochastic EM of every Einet.

        Returns the weighted log-likelihood of each Einet's rows before the step, and their weight.
        """
        step_size = as_step_size(step_size)
        if self._is_replayed(batch):
            return replay.step(self, batch, step_size, prior)
        return self.step_(batch, step_size, prior)

    @torch.no_grad()
    def step_(
        self, batch: Batch, step_size: float | Tensor, prior: PseudoCounts | None = None
    ) -> Float[Tensor, "2 count"]:
        sums, leaves = (None, None) if prior is None else (prior.sums, prior.leaves)
        with Beside(self.log_class_prior) as beside:
            expected = self._expect(batch, Step(step_size, sums), beside)
            self.leaf.step_(expected.evidence, expected.flow, step_size, leaves)
        return expected.sums

    def _expect(
        self, batch: Batch, of_weights: list[Tensor] | Step, beside: Beside | None = None
    ) -> Expectation:
        assert batch.weights is not None
        values, weights = self.fill(batch), self.circuit.weights
        root = values.top.v[-self.count :, 0]
        log_prob = root.double().log() + values.top.m[-self.count :]
        counted = batch.weights.T
        seed = torch.where(log_prob > -torch.inf, counted, 0.0)
        if values.fused:
            self.circuit.forget_scales(values)
            seed = torch.where(root > 0, seed / root, 0.0)
        flow = self.circuit.empty_flow(values, consume=True)
        flow["top"][-self.count :, 0] = seed
        into_leaves = self.circuit.flow_down_(weights, values, flow, of_weights, beside)
        total = torch.where(counted > 0, log_prob * counted, 0.0).sum(1)
        return Expectation(values.evidence, into_leaves, torch.stack([total, counted.sum(1)]))


def stacked(rows: Batch, weights: Float[Tensor, "rows count"]) -> Batch:
    """A batch for Einets side by side, given for each of its rows that of the first, the second, …

    Args:
        rows: As many times as many rows as ``weights`` has, of one Einet after the other.
        weights: How often each counts.
    """

    def wide(tensor: Tensor) -> Tensor:
        return tensor.reshape(len(weights), -1)

    observed = None if rows.observed is None else wide(rows.observed)
    return Batch(wide(rows.x), observed, None, weights)
