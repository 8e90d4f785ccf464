"""A kind of sums of one's own, in one file: all nodes of a layer share one matrix of weights.

It is what a program outside the library would write. Only torch is used; the fused path has to do
without kernels for it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from einet.kernels.nodes import Nodes, finish, per_sum
from einet.kernels.update import Statistic, collector
from einet.layers import Compiler, Descent, SumLayer, Values, Visits, register_sums
from einet.layers.base import copies

__all__ = ["SharedLayer"]


class SharedLayer(SumLayer):
    r"""Sums over products of two children: :math:`S_{lk} = \sum_i W_{ki} N_{li} N'_{li}`.

    There are as many matrices W as copies of a circuit; node l belongs to copy l modulo that.
    """

    left: Tensor
    right: Tensor

    def __init__(
        self,
        left: list[int],
        right: list[int],
        num_inputs: int,
        num_outputs: int,
        start: int,
        target: str,
        times: int = 1,
    ) -> None:
        super().__init__()
        self.source, self.target = "body", target
        self.start, self.num_nodes, self.num_outputs = start, len(left), num_outputs
        self.num_inputs, self.times = num_inputs, times
        self.register_buffer("left", torch.tensor(left))
        self.register_buffer("right", torch.tensor(right))
        self.weight = nn.Parameter(torch.empty(times, num_outputs, num_inputs))

    def sources(self) -> list[int]:
        return [*self.left.tolist(), *self.right.tolist()]

    def _product(self, values: Values) -> Tensor:
        v = values.body.v[:, : self.num_inputs]
        return v[self.left] * v[self.right]

    def _per_node(self, weight: Tensor) -> Tensor:
        return weight.repeat(self.num_nodes // self.times, 1, 1)

    def propagate_torch(self, weight: Tensor, values: Values, out: Nodes, maximise: bool) -> None:
        product, matrices = self._product(values), self._per_node(weight)
        if maximise:
            out.v[:] = (matrices.unsqueeze(-1) * product.unsqueeze(1)).amax(2)
        else:
            out.v[:] = matrices @ product
        finish(out.v, values.body.m[self.left] + values.body.m[self.right], out)

    def backpropagate_torch(
        self, weight: Tensor, values: Values, above: Tensor, below: Tensor, statistic: Statistic
    ) -> None:
        every = slice(0, self.num_nodes)
        upper = per_sum(above, self.written(values), every, slice(0, above.shape[-1]))
        product = self._product(values)
        # Flows first: a step changes the weights.
        flows = product * (self._per_node(weight).transpose(1, 2) @ upper)
        for child in (self.left, self.right):
            below[:, : self.num_inputs].index_add_(0, child, flows)
        into = collector(weight, statistic, axis=-1)
        if into is not None:
            found = upper @ product.transpose(1, 2)
            found = found.unflatten(0, (-1, self.times)).sum(0)
            room = into.room(slice(0, self.times))
            room.copy_(found if into.fresh else room + found)
            into.done(slice(0, self.times))

    def descend(self, visits: Visits, descent: Descent) -> Visits:
        options = self.weight.detach()[visits.node % self.times, visits.k]
        left, right = self.left[visits.node], self.right[visits.node]
        if descent.values is not None:
            v = descent.values.body.v[:, : self.num_inputs]
            row = visits.sample % v.shape[-1]
            options = options * v[left, :, row] * v[right, :, row]
        i = descent.pick(options)
        return Visits.cat([Visits(left, i, visits.sample), Visits(right, i, visits.sample)])

    def repeated(self, times: int) -> SharedLayer:
        left, right = (copies(side.tolist(), times) for side in (self.left, self.right))
        entries = (self.num_inputs, self.num_outputs)
        return SharedLayer(left, right, *entries, self.start * times, self.target, times)

    def simplices(self, tensor: Tensor) -> list[Tensor]:
        return [tensor]

    def from_simplices(self, views: list[Tensor]) -> Tensor:
        return views[0]


@register_sums("shared")
class SharedCompiler(Compiler):
    """One such layer for the partitions of each level of a graph."""

    equal_entries = True

    def prepare(self) -> None:
        self.graph = self.graph.binarized()

    def over_leaf(self) -> SumLayer:
        raise ValueError("shared sums need a graph that splits its root")

    def add_partitions(self, partitions: list[int], outputs: int, space: str) -> dict[int, int]:
        pairs = [self.graph.partitions[partition].children for partition in partitions]
        left, right = ([self.node[region] for region in side] for side in zip(*pairs, strict=True))
        start = self.size[space]
        self.append(SharedLayer(left, right, self.num_sums, outputs, start, space), space)
        return {partition: start + number for number, partition in enumerate(partitions)}
