"""The linear layer: L sums, each over the entries of an element-wise product of its children."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._memory import chunks
from einet.kernels.nodes import Nodes
from einet.kernels.torch import linear as kernel
from einet.kernels.torch.linear import Factors
from einet.kernels.update import Statistic, Step, collector
from einet.layers.base import Descent, Values, Visits, copied_lists
from einet.layers.parameter import CanonicalParameter
from einet.layers.product import ProductLayer

if TYPE_CHECKING:
    from einet.kernels.triton.linear import LinearEdges
    from einet.layers.choices import Choices

__all__ = ["LinearLayer"]


class LinearLayer(ProductLayer):
    r"""Sums over products of equal entries: :math:`S_{lk} = \sum_i W_{lki} \prod_c N_{lci}`.

    A partition may have any number of children, and its weights are a matrix, where those of an
    :class:`~einet.layers.EinsumLayer` are K matrices: all children of a sum share one latent i.

    Args:
        children: The node numbers of each sum's children, longer lists first.
        num_inputs: I, the entries of every child.
        num_outputs: K, the entries of each sum.
        start: Where the layer's nodes begin in its target space.
        target: ``"body"``, or ``"top"`` for the root.

    Example:
        >>> layer = LinearLayer([[0, 1, 2], [3, 4]], num_inputs=4, num_outputs=4, start=5)
        >>> layer, layer.child_lists()
        (LinearLayer(L=2, K=4, I=4, children=2-3), [[0, 1, 2], [3, 4]])
        >>> layer.extra_repr()
        'L=2, K=4, I=4, children=2-3'
    """

    has_choices: ClassVar = True
    children_index: Int[Tensor, " edges"]
    counts: Int[Tensor, " L"]
    ends: Int[Tensor, " L_1"]

    def __init__(
        self,
        children: list[list[int]],
        num_inputs: int,
        num_outputs: int,
        start: int,
        target: str = "body",
    ) -> None:
        super().__init__()
        counts = [len(of_sum) for of_sum in children]
        assert counts == sorted(counts, reverse=True)
        self.source, self.target = "body", target
        self.start, self.num_nodes, self.num_outputs = start, len(children), num_outputs
        self.num_inputs = num_inputs
        self._sources = [node for of_sum in children for node in of_sum]
        ascending = counts[::-1]
        self._widths = [len(counts) - bisect_right(ascending, place) for place in range(counts[0])]
        self._fewest = counts[-1]
        self.register_buffer("children_index", torch.tensor(self._sources))
        self.register_buffer("counts", torch.tensor(counts))
        ends = torch.tensor([0, *counts]).cumsum(0)
        self.register_buffer("ends", ends, persistent=False)
        self.weight = CanonicalParameter(torch.empty(len(children), num_outputs, num_inputs))

    def _factors(self) -> Factors:
        return Factors(self.children_index, self.ends, self._widths, self.num_inputs)

    def _edges(self) -> LinearEdges:
        from einet.kernels.triton.linear import LinearEdges

        # Two children are the most frequent number in trees: a variable of its own and one sum.
        at_once = 2 if len(self._sources) <= 2.5 * self.num_nodes else 4
        return LinearEdges(
            self.children_index, self.ends, self.num_inputs, self.num_leaf_nodes, at_once
        )

    def sources(self) -> list[int]:
        return self._sources

    def child_lists(self) -> list[list[int]]:
        """The children of each sum."""
        ends = self.ends.tolist()
        return [self._sources[a:b] for a, b in pairwise(ends)]

    def propagate_torch(self, weight: Tensor, values: Values, out: Nodes, maximise: bool) -> None:
        kernel.linear_forward(weight, values.body, self._factors(), out, maximise)

    def propagate_fused(self, weight: Tensor, values: Values, out: Nodes) -> None:
        from einet.kernels.triton import linear as triton

        largest = values.kept[self] = torch.empty_like(out.peak, dtype=torch.int32)
        triton.forward(weight, values.body, self._edges(), out, largest, values.precision)

    def backpropagate_torch(
        self, weight: Tensor, values: Values, above: Tensor, below: Tensor, statistic: Statistic
    ) -> None:
        into = collector(weight, statistic, axis=-1)
        children, sums = self._factors(), self.written(values)
        kernel.linear_backward(weight, values.body, children, sums, above, into, below, self.first)

    def backpropagate_fused(
        self,
        weight: Tensor,
        values: Values,
        above: Tensor,
        below: Tensor,
        statistic: Statistic,
        rows: Tensor | None = None,
    ) -> Callable[[], None] | None:
        """As in :class:`SumLayer`, or to other rows.

        Args:
            weight, values, above, below, statistic: As in :class:`SumLayer`.
            rows: Rows of ``below`` to write to, one for each child, in place of the children's own.
        """
        from einet.kernels.triton import linear, linear_weights

        nodes, edges, precision = values.body, self._edges(), values.precision
        peak, largest = self.written(values).peak, values.kept[self]
        room = below if rows is not None else self.room(below, self.num_inputs)
        where = (self.rows if rows is None else rows, self.add)
        linear.backward(weight, nodes, edges, above, peak, largest, room, *where, precision)
        if rows is None:
            self.settle(room, below, self.num_inputs)
        if isinstance(statistic, Step):
            size, pseudo = statistic.on(weight), statistic.pseudo_on(weight)
            return partial(
                linear_weights.step,
                weight, nodes, edges, above, peak, largest, size, precision, pseudo,
            )  # fmt: skip
        if statistic is not None:
            return partial(
                linear_weights.statistics,
                nodes, edges, above, peak, largest, statistic, precision,
            )  # fmt: skip
        return None

    def descend(self, visits: Visits, descent: Descent) -> Visits:
        """One entry is chosen for all children of a sum."""
        i = torch.empty_like(visits.k)
        size = self.num_inputs * self.weight.element_size()
        for part in chunks(len(i), "choices", size, self.weight.device):
            i[part] = descent.pick(self._options(visits[part], descent))
        counts = self.counts[visits.node]
        if self._fewest == len(self._widths):
            # All have as many, so that nobody need wait for their number.
            total = len(i) * len(self._widths)
        else:
            total = int(counts.sum())
        which = torch.arange(len(i), device=i.device).repeat_interleave(counts, output_size=total)
        # The first child of a visit is the one after all those of visits before.
        place = torch.arange(total, device=i.device) - (counts.cumsum(0) - counts)[which]
        node = self.children_index[self.ends[visits.node[which]] + place]
        return Visits(node, i[which], visits.sample[which])

    def _options(self, visits: Visits, descent: Descent) -> Float[Tensor, "visits I"]:
        """How likely each entry is, up to a factor."""
        weight = self.weight.detach()[visits.node, visits.k]
        if descent.values is None:
            return weight
        v = descent.values.body.v
        row = visits.sample % v.shape[-1]
        product = torch.ones_like(weight)
        exponent = torch.zeros_like(weight, dtype=torch.int64)
        counts, begin = self.counts[visits.node], self.ends[visits.node]
        for place in range(len(self._widths)):
            here = (counts > place).unsqueeze(1)
            node = self.children_index[torch.where(here[:, 0], begin + place, begin)]
            factor = v[node, : self.num_inputs, row]
            kernel.multiply_(product, exponent, torch.where(here, factor, 1.0))
        kernel.scale_down_(product, exponent)
        return weight * product

    def choose(self, choices: Choices, values: Values | None) -> None:
        from einet.kernels.triton import linear_choices as triton

        weight = self.weight.detach().contiguous()
        v, above = (None if values is None else values.body.v), choices.space(self.target)
        number = choices.number(self.target, self.start)
        triton.choose(
            weight, v, self._edges(), above[self.slots], choices.body, choices.seed, number
        )

    def align(self, share: float) -> None:
        k = torch.arange(self.num_outputs, device=self.weight.device)
        with torch.no_grad():
            self.weight.mul_(1 - share)
            self.weight[:, k, k % self.num_inputs] += share

    def repeated(self, times: int) -> LinearLayer:
        children = copied_lists(self._sources, self.counts.tolist(), times)
        start = self.start * times
        return LinearLayer(children, self.num_inputs, self.num_outputs, start, self.target)

    def simplices(self, tensor: Tensor) -> list[Tensor]:
        return [tensor]

    def from_simplices(self, views: list[Tensor]) -> Tensor:
        return views[0]

    def extra_repr(self) -> str:
        most, fewest = len(self._widths), self._fewest
        children = str(most) if most == fewest else f"{fewest}-{most}"
        return f"L={self.num_nodes}, K={self.num_outputs}, I={self.num_inputs}, children={children}"
