"""The einsum layer: L sums, each over the outer product of two children."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._memory import chunks
from einet.kernels.dispatch import MOST_OUTER
from einet.kernels.memory import NodeRows, spacing
from einet.kernels.nodes import Nodes
from einet.kernels.torch import einsum as kernel
from einet.kernels.torch.einsum import Children
from einet.kernels.update import Statistic, Step, collector
from einet.layers.base import Descent, Values, Visits, copies
from einet.layers.parameter import CanonicalParameter
from einet.layers.product import ProductLayer

if TYPE_CHECKING:
    from einet.kernels.triton.einsum import EinsumEdges
    from einet.layers.choices import Choices

__all__ = ["EinsumLayer"]


class EinsumLayer(ProductLayer):
    r"""Equation (5) of the paper: :math:`S_{lk} = W_{lkij} N_{li} N'_{lj}`.

    ``weight[l, k, i·J + j]`` is :math:`W_{lkij}`, normalised over (i, j). A ``right`` child of −1
    is the constant 1 (J = 1): the sum is then over the entries of its left child alone.

    Args:
        left, right: Node numbers of the two children of each sum.
        num_left, num_right: Their numbers of entries, I and J.
        num_outputs: K, the entries of each sum.
        start: Where the layer's nodes begin in its target space.
        target: ``"body"``, or ``"top"`` for the root.

    Example:
        >>> layer = EinsumLayer([0], [1], num_left=2, num_right=2, num_outputs=3, start=2)
        >>> layer, layer.weight.shape
        (EinsumLayer(L=1, K=3, I=2, J=2), torch.Size([1, 3, 4]))
        >>> layer.extra_repr()
        'L=1, K=3, I=2, J=2'
    """

    most_entries: ClassVar[int] = MOST_OUTER
    has_choices: ClassVar = True
    left: Int[Tensor, " L"]
    right: Int[Tensor, " L"]
    to_left: Int[Tensor, " L"]
    to_right: Int[Tensor, " L"]
    add_left: Int[Tensor, " L"]
    add_right: Int[Tensor, " L"]

    def __init__(
        self,
        left: list[int],
        right: list[int],
        num_left: int,
        num_right: int,
        num_outputs: int,
        start: int,
        target: str = "body",
    ) -> None:
        super().__init__()
        self.source, self.target = "body", target
        self.start, self.num_nodes, self.num_outputs = start, len(left), num_outputs
        self.num_left, self.num_right = num_left, num_right
        self.unary = right[0] < 0
        self._left = (left[0], spacing(left))
        self._right = (right[0], spacing(right))
        self._sources = left if self.unary else [*left, *right]
        self.register_buffer("left", torch.tensor(left))
        self.register_buffer("right", torch.tensor(right))
        self.weight = CanonicalParameter(torch.empty(len(left), num_outputs, num_left * num_right))

    def _children(self) -> Children:
        left = NodeRows(self.left, *self._left)
        right = None if self.unary else NodeRows(self.right, *self._right)
        return Children(left, right, self.num_left, self.num_right)

    def _edges(self) -> EinsumEdges:
        from einet.kernels.triton.einsum import EinsumEdges

        right = None if self.unary else self.right
        return EinsumEdges(self.left, right, self.num_left, self.num_right, self.num_leaf_nodes)

    def sources(self) -> list[int]:
        return self._sources

    def expect(self, reached: set[int], num_leaf_nodes: int) -> None:
        super().expect(reached, num_leaf_nodes)
        # Copies: kernels are compiled once more for addresses that are not aligned.
        for name, numbers in (("to", self.rows), ("add", self.add)):
            left, right = numbers[: self.num_nodes], numbers[-self.num_nodes :]
            self.register_buffer(f"{name}_left", left.clone(), persistent=False)
            self.register_buffer(f"{name}_right", right.clone(), persistent=False)

    def propagate_torch(self, weight: Tensor, values: Values, out: Nodes, maximise: bool) -> None:
        kernel.einsum_forward(weight, values.body, self._children(), out, maximise)

    def propagate_fused(self, weight: Tensor, values: Values, out: Nodes) -> None:
        from einet.kernels.triton import einsum as triton

        triton.forward(weight, values.body, self._edges(), out, values.precision)

    def backpropagate_torch(
        self, weight: Tensor, values: Values, above: Tensor, below: Tensor, statistic: Statistic
    ) -> None:
        into = collector(weight, statistic, axis=-1)
        children, sums = self._children(), self.written(values)
        kernel.einsum_backward(weight, values.body, children, sums, above, into, below, self.first)

    def backpropagate_fused(
        self, weight: Tensor, values: Values, above: Tensor, below: Tensor, statistic: Statistic
    ) -> Callable[[], None] | None:
        from einet.kernels.triton import flows, weights

        nodes, edges, precision = values.body, self._edges(), values.precision
        entries = max(self.num_left, self.num_right)
        room = self.room(below, entries)
        rows, add = (self.to_left, self.to_right), (self.add_left, self.add_right)
        sums = self.written(values)
        totals = flows.backward(weight, nodes, edges, sums, above, room, rows, add, precision)
        peak = sums.peak
        self.settle(room, below, entries)
        if isinstance(statistic, Step):
            size, pseudo = statistic.on(weight), statistic.pseudo_on(weight)
            return partial(
                weights.step, weight, nodes, edges, above, peak, totals, size, precision, pseudo
            )
        if statistic is not None:
            return partial(weights.statistics, nodes, edges, above, peak, statistic, precision)
        return None

    def descend(self, visits: Visits, descent: Descent) -> Visits:
        shape = (self.num_nodes, self.num_outputs, self.num_left, self.num_right)
        weight = self.weight.detach().view(shape)
        marginal = None if descent.values is not None else descent.reduce(weight)
        size = self.num_left * self.num_right * weight.element_size()
        parts = [
            self._descend(visits[part], descent, weight, marginal)
            for part in chunks(len(visits.node), "choices", size, weight.device)
        ]
        return Visits.cat(parts) if parts else visits

    def _descend(
        self,
        visits: Visits,
        descent: Descent,
        weight: Float[Tensor, "L K I J"],
        marginal: Float[Tensor, "L K I"] | None,
    ) -> Visits:
        left, right = self.left[visits.node], self.right[visits.node]
        if marginal is not None:
            i = descent.pick(marginal[visits.node, visits.k])
            of_j = weight[visits.node, visits.k, i]
        else:
            assert descent.values is not None
            v = descent.values.body.v
            row = visits.sample % v.shape[-1]
            joint = weight[visits.node, visits.k]
            if not self.unary:
                joint = joint * v[right, : self.num_right, row].unsqueeze(1)
            i = descent.pick(descent.reduce(joint) * v[left, : self.num_left, row])
            of_j = joint[torch.arange(i.shape[0], device=i.device), i]
        to_left = Visits(left, i, visits.sample)
        if self.unary:
            return to_left
        return Visits.cat([to_left, Visits(right, descent.pick(of_j), visits.sample)])

    def choose(self, choices: Choices, values: Values | None) -> None:
        from einet.kernels.triton import inner_choices as triton

        weight = self.weight.detach().contiguous()
        v, above = (None if values is None else values.body.v), choices.space(self.target)
        number = choices.number(self.target, self.start)
        triton.choose_pair(
            weight, v, self._edges(), above[self.slots], choices.body, choices.seed, number
        )

    def align(self, share: float) -> None:
        k = torch.arange(self.num_outputs, device=self.weight.device)
        with torch.no_grad():
            self.weight.mul_(1 - share)
            own = k % self.num_left * self.num_right + k % self.num_right
            self.weight[:, k, own] += share

    def repeated(self, times: int) -> EinsumLayer:
        left, right = (copies(side.tolist(), times) for side in (self.left, self.right))
        entries = (self.num_left, self.num_right, self.num_outputs)
        return EinsumLayer(left, right, *entries, self.start * times, self.target)

    def simplices(self, tensor: Tensor) -> list[Tensor]:
        return [tensor]

    def from_simplices(self, views: list[Tensor]) -> Tensor:
        return views[0]

    def extra_repr(self) -> str:
        return f"L={self.num_nodes}, K={self.num_outputs}, I={self.num_left}, J={self.num_right}"
