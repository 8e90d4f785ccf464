"""The mixing layer: element-wise mixtures of the simple sums of regions with several partitions."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.torch import mixing as kernel
from einet.kernels.update import Statistic, Step, collector
from einet.layers.base import Descent, SumLayer, Values, Visits, copied_lists
from einet.layers.parameter import CanonicalParameter

if TYPE_CHECKING:
    from einet.layers.choices import Choices

__all__ = ["MixingLayer"]


class MixingLayer(SumLayer):
    r"""Appendix B of the paper, weights for each entry: :math:`S_{nk} = \sum_c w_{nck} N_{nck}`.

    Regions come ordered by their number of children, and ``weight[edge, k]`` holds their weights
    one region after the other: nothing is padded, and the regions with c children are one
    contiguous block ``[n, c, K]``.

    Args:
        children: For each region the node numbers of its simple sums, shorter lists first.
        num_outputs: K.
        start: Where the layer's nodes begin in its space.
        space: ``"body"``, or ``"top"`` for the root; the layer reads and writes there.

    Example:
        >>> layer = MixingLayer([[0, 1], [2, 3, 4]], num_outputs=4, start=5)
        >>> layer, layer.weight.shape
        (MixingLayer(regions=2, edges=5, K=4), torch.Size([5, 4]))
        >>> layer.extra_repr()
        'regions=2, edges=5, K=4'
    """

    children_index: Int[Tensor, " edges"]
    counts: Int[Tensor, " regions"]
    ends: Int[Tensor, " regions_1"]
    has_fused: ClassVar = True
    has_choices: ClassVar = True
    first = True

    def __init__(
        self, children: list[list[int]], num_outputs: int, start: int, space: str = "body"
    ) -> None:
        super().__init__()
        counts = [len(of_region) for of_region in children]
        assert counts == sorted(counts)
        self.source = self.target = space
        self.start, self.num_nodes, self.num_outputs = start, len(children), num_outputs
        #: (number of regions, children of each), in order.
        self.groups = [(len(list(same)), count) for count, same in groupby(counts)]
        self._sources = [node for of_region in children for node in of_region]
        self.register_buffer("children_index", torch.tensor(self._sources))
        self.register_buffer("counts", torch.tensor(counts))
        ends = torch.tensor([0, *counts]).cumsum(0)
        self.register_buffer("ends", ends, persistent=False)
        self.weight = CanonicalParameter(torch.empty(sum(counts), num_outputs))

    def _blocks(self, tensor: Tensor) -> list[Tensor]:
        """``tensor[edges, …]`` as one ``[n, c, …]`` view for each group."""
        views, edge = [], 0
        for regions, count in self.groups:
            part = tensor[edge : edge + regions * count]
            views.append(part.view(regions, count, *tensor.shape[1:]))
            edge += regions * count
        return views

    def _regions(self) -> list[slice]:
        """The regions of each group, counted from the layer's first."""
        ends = torch.tensor([regions for regions, _ in self.groups]).cumsum(0).tolist()
        return [
            slice(end - regions, end) for end, (regions, _) in zip(ends, self.groups, strict=True)
        ]

    def sources(self) -> list[int]:
        return self._sources

    def propagate_torch(self, weight: Tensor, values: Values, out: Nodes, maximise: bool) -> None:
        nodes = values.space(self.source)
        groups = zip(
            self._blocks(weight), self._blocks(self.children_index), self._regions(), strict=True
        )
        for w, index, regions in groups:
            kernel.mixing_forward(w, nodes, index, out[regions], maximise)

    def propagate_fused(self, weight: Tensor, values: Values, out: Nodes) -> None:
        from einet.kernels.triton import mixing as triton

        nodes, most = values.space(self.source), self.groups[-1][1]
        triton.forward(weight, nodes, self.children_index, self.ends, out, most)

    def backpropagate_torch(
        self, weight: Tensor, values: Values, above: Tensor, below: Tensor, statistic: Statistic
    ) -> None:
        nodes, written = values.space(self.source), self.written(values)
        indices, regions = self._blocks(self.children_index), self._regions()
        each: list[Statistic] = [statistic] * len(indices)
        if isinstance(statistic, Tensor):
            each = [*self._blocks(statistic)]
        groups = zip(self._blocks(weight), indices, regions, each, strict=True)
        for w, index, part, of_group in groups:
            statistics = collector(w, of_group, axis=1)
            kernel.mixing_backward(w, nodes, index, written[part], above[part], statistics, below)

    def backpropagate_fused(
        self, weight: Tensor, values: Values, above: Tensor, below: Tensor, statistic: Statistic
    ) -> None:
        from einet.kernels.triton import mixing as triton

        nodes, written = values.space(self.source), self.written(values)
        index, most = self.children_index, self.groups[-1][1]
        triton.backward(weight, nodes, index, self.ends, written, above, below, most)
        if isinstance(statistic, Step):
            size, pseudo = statistic.on(weight), statistic.pseudo_on(weight)
            triton.step(weight, nodes, index, self.ends, below, size, pseudo)
        elif statistic is not None:
            triton.statistics(weight, nodes, index, below, statistic)

    def descend(self, visits: Visits, descent: Descent) -> Visits:
        index, weight = self._padded()
        children = index[visits.node]
        real = children >= 0
        options = weight[visits.node, :, visits.k]
        if descent.values is not None:
            nodes = descent.values.space(self.source)
            row = (visits.sample % nodes.m.shape[-1]).unsqueeze(1)
            scales = torch.where(real, nodes.m[children, row], -torch.inf)
            scales = (scales - scales.amax(1, keepdim=True)).exp()
            options = options * scales * nodes.v[children, visits.k.unsqueeze(1), row]
        chosen = descent.pick(torch.where(real, options, 0)).unsqueeze(1)
        return Visits(children.gather(1, chosen).squeeze(1), visits.k, visits.sample)

    def choose(self, choices: Choices, values: Values | None) -> None:
        from einet.kernels.triton import inner_choices as triton

        weight, space = self.weight.detach().contiguous(), choices.space(self.source)
        nodes = None if values is None else values.space(self.source)
        number = choices.number(self.target, self.start)
        triton.choose_component(
            weight, nodes, self.children_index, self.ends, space[self.slots], space, choices.seed,
            number,
        )  # fmt: skip

    def _padded(self) -> tuple[Int[Tensor, "regions C"], Float[Tensor, "regions C K"]]:
        """Children and weights of each region, padded with −1 and 0 to the largest count."""
        most = self.groups[-1][1]
        index = self.children_index.new_full((self.num_nodes, most), -1)
        weight = self.weight.new_zeros(self.num_nodes, most, self.num_outputs)
        blocks = zip(
            self._blocks(self.children_index), self._blocks(self.weight.detach()), strict=True
        )
        for (i, w), regions in zip(blocks, self._regions(), strict=True):
            index[regions, : i.shape[1]] = i
            weight[regions, : i.shape[1]] = w
        return index, weight

    def repeated(self, times: int) -> MixingLayer:
        children = copied_lists(self._sources, self.counts.tolist(), times)
        return MixingLayer(children, self.num_outputs, self.start * times, self.target)

    def simplices(self, tensor: Tensor) -> list[Tensor]:
        return [block.transpose(1, 2) for block in self._blocks(tensor)]

    def from_simplices(self, views: list[Tensor]) -> Tensor:
        return torch.cat([view.transpose(1, 2).flatten(0, 1) for view in views])

    def extra_repr(self) -> str:
        return f"regions={self.num_nodes}, edges={self.weight.shape[0]}, K={self.num_outputs}"
