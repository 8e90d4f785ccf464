"""Linear layers of a tree, one above the other, that the fused kernels serve in one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from einet.kernels.update import Statistic, Step
from einet.layers.base import SumLayer, Values
from einet.layers.linear import LinearLayer
from einet.layers.tree_walk import walk_plan

if TYPE_CHECKING:
    # Triton may not be installed.
    from einet.kernels.triton.tree_parts import TreeEdges, Walk, Weights
    from einet.layers.choices import Choices

__all__ = ["LinearTree", "find_trees"]

#: Sums of more entries are wide: see :mod:`einet.kernels.triton.wide_tree`.
MOST_NARROW = 64
# A single layer has its own kernels, which serve it as well.
_FEWEST_LAYERS = 2


def find_trees(layers: Sequence[SumLayer]) -> list[LinearTree]:
    """Runs of linear layers in which no node has two parents, bottom up."""
    trees, begin = [], 0
    while begin < len(layers):
        end = begin
        read: set[int] = set()
        while end < len(layers) and _joins(layers[begin], layers[end], read):
            read.update(layers[end].sources())
            end += 1
        if end - begin >= _FEWEST_LAYERS:
            trees.append(LinearTree(layers[begin:end], begin))  # type: ignore[arg-type]
        begin = max(end, begin + 1)
    return trees


def _is_recorded(tensor: Tensor) -> bool:
    """Whether what is done with a tensor now is being recorded as a CUDA graph."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _joins(first: SumLayer, layer: SumLayer, read: set[int]) -> bool:
    """Whether a layer belongs to the tree that begins with the first one."""
    if not (isinstance(first, LinearLayer) and isinstance(layer, LinearLayer)):
        return False
    sizes = (layer.num_inputs, layer.num_outputs, layer.target)
    # What some other layer has written gradients for is not this one's alone.
    return sizes == (first.num_outputs, first.num_outputs, "body") and (
        layer.first and read.isdisjoint(layer.sources())
    )


class LinearTree(nn.Module):
    """Layers ``begin`` and following of a circuit, whose sums make up trees.

    It has no parameters: the layers keep theirs. Sum s is node ``first_sum + s`` of the body.

    Args:
        layers: Linear layers of equal size, one above the other.
        begin: The number of the first of them.
    """

    children_index: Tensor
    ends: Tensor
    parents: Tensor
    order: Tensor
    tops: Tensor
    row_offsets: Tensor
    walk_children: Tensor
    records: Tensor
    starts: Tensor
    heads: Tensor
    leaf_rows: Tensor

    def __init__(self, layers: Sequence[LinearLayer], begin: int) -> None:
        super().__init__()
        self.slots = slice(begin, begin + len(layers))
        self.first_sum, self.num_leaf_nodes = layers[0].start, layers[0].num_leaf_nodes
        self.num_inputs, self.num_outputs = layers[0].num_inputs, layers[0].num_outputs
        self._rows = [layer.num_nodes for layer in layers]
        lists = [nodes for layer in layers for nodes in layer.child_lists()]
        parents = [-1] * len(lists)
        for number, nodes in enumerate(lists):
            for node in nodes:
                if node >= self.first_sum:
                    parents[node - self.first_sum] = number
        depth = [0] * len(lists)
        # Parents come after their children.
        for number in reversed(range(len(lists))):
            if parents[number] >= 0:
                depth[number] = depth[parents[number]] + 1
        # Those first that are furthest from the top: most has to wait for them.
        order = sorted(range(len(lists)), key=lambda number: (-depth[number], number))
        counts = torch.tensor([0, *map(len, lists)])
        plan = {
            "children_index": torch.tensor([node for nodes in lists for node in nodes]),
            "ends": counts.cumsum(0),
            "parents": torch.tensor(parents),
            "order": torch.tensor(order),
        }
        size = self.num_inputs * self.num_outputs
        rows = [row for count in self._rows for row in range(count)]
        plan["row_offsets"] = size * torch.tensor(rows)
        plan["tops"] = torch.tensor([row for row, parent in enumerate(parents) if parent < 0])
        walk = walk_plan(lists, parents, self.first_sum)
        plan["walk_children"] = torch.tensor(walk["children"])
        plan |= {name: torch.tensor(walk[name]) for name in ("records", "starts", "heads")}
        of_leaf = [-1] * self.num_leaf_nodes
        for number, nodes in enumerate(lists):
            for node in nodes:
                if node < self.num_leaf_nodes:
                    of_leaf[node] = number
        plan["leaf_rows"] = torch.tensor(of_leaf)
        #: Whether leaves can take flows from where its sums keep them: :class:`.SharedFlows`.
        self.shares_flows = not self.is_wide and self.first_sum == self.num_leaf_nodes
        for name, numbers in plan.items():
            self.register_buffer(name, numbers, persistent=False)
        self._at_once = 2 if len(self.children_index) <= 2.5 * len(lists) else 4
        self._parent_list = tuple(parents)
        self._places: dict[tuple[int, ...], Tensor] = {}
        #: Those of them that recordings read, which are kept as long as the tree.
        self._recorded: dict[tuple[int, ...], Tensor] = {}
        self._orders: dict[tuple, Tensor] = {}

    def _edges(self) -> TreeEdges:
        from einet.kernels.triton.tree_parts import TreeEdges

        return TreeEdges(
            self.children_index, self.ends, self.parents, self.order,
            self.first_sum, self.num_leaf_nodes, self._at_once,
            self.tops, self._parent_list, self._orders,
        )  # fmt: skip

    def _walk(self) -> Walk:
        from einet.kernels.triton.tree_parts import Walk

        return Walk(
            self.walk_children, self.records, self.starts, self.heads,
            self.first_sum, self.num_leaf_nodes,
        )  # fmt: skip

    def _weights(self, tensors: list[Tensor]) -> Weights:
        """Tensors of all layers as the kernels find them."""
        from einet.kernels.triton.tree_parts import Weights

        size = self.num_inputs * self.num_outputs
        base = tensors[0]
        key = tuple(tensor.data_ptr() for tensor in tensors)
        offsets = self._recorded.get(key, self._places.get(key))
        if offsets is None or offsets.device != base.device:
            # Made on the device: while a graph is recorded, nothing can be copied there.
            offsets = self.row_offsets.clone()
            parts = offsets.split(self._rows)
            for part, at in zip(parts, key, strict=True):
                part += (at - key[0]) // base.element_size()
            if not _is_recorded(base):
                # Parameters and statistics; what a gradient step brings is elsewhere every time.
                if len(self._places) >= 4:
                    self._places = {}
                self._places[key] = offsets
        elif key not in self._recorded and _is_recorded(base):
            self._recorded[key] = offsets
        aligned = size % 16 == 0 and all(at % 64 == 0 for at in key)
        return Weights(base, offsets, self.num_outputs, self.num_inputs, tensors, aligned)

    @property
    def is_wide(self) -> bool:
        """Whether sums have so many entries that products of matrices take most of the time."""
        return max(self.num_inputs, self.num_outputs) > MOST_NARROW

    def propagate(self, weights: list[Tensor], values: Values) -> None:
        """Compute the nodes of all layers by the fused kernels."""
        from einet.kernels.triton import tree, tree_parts, wide_parts, wide_tree

        own = self._weights([weight.contiguous() for weight in weights])
        nodes, precision = values.body, values.precision
        if self.is_wide:
            edges = self._edges()
            sizes = (len(edges), self.num_inputs, nodes.v.shape[-1])
            wide = wide_parts.WideProducts.empty(*sizes, nodes.v, precision)
            values.kept[self] = wide
            wide_tree.forward(own, nodes, edges, wide, precision)
        else:
            products = None
            if values.keeps:
                p = nodes.v.new_empty(len(self.parents), self.num_inputs, nodes.v.shape[-1])
                products = values.kept[self] = tree_parts.Products(p)
            tree.forward(own, nodes, self._walk(), products, precision)

    def backpropagate(
        self,
        weights: list[Tensor],
        values: Values,
        flow: Tensor,
        statistics: list[Statistic],
        above: Tensor | None = None,
    ) -> Callable[[], None] | None:
        """From gradients of the topmost sums to those of all, and flows into leaves.

        What is returned takes the statistics of weights; nothing below need wait for it.

        Args:
            weights: Those of all layers.
            values: Values of all nodes.
            flow: Gradients of the topmost sums, in rows of all nodes; flows of leaves go here, and
                gradients of what else lies below.
            statistics: What becomes of the statistics of each layer's weights.
            above: Gradients of the topmost sums, if ``flow`` is to have a row for each sum instead:
                its flow into all its children. Only where :attr:`shares_flows`.
        """
        own = self._weights([weight.contiguous() for weight in weights])
        products, nodes, precision = values.kept[self], values.body, values.precision
        if self.is_wide:
            from einet.kernels.triton import wide_parts, wide_tree, wide_weights

            edges = self._edges()
            gradients = wide_parts.Gradients.of_top(flow, nodes, edges, self.num_outputs, precision)
            wide_tree.backward(own, nodes, edges, products, gradients, flow, precision)
            step: Callable[..., None] = partial(wide_weights.step, own, products, gradients)
            add: Callable[..., None] = partial(wide_weights.statistics, products, gradients)
        else:
            from einet.kernels.triton import tree, tree_parts, tree_weights

            walk = self._walk()
            below = None
            sums = flow[: len(walk), : self.num_outputs]
            if above is None:
                sums = flow[self.first_sum : self.first_sum + len(walk), : self.num_outputs]
                above, below = sums.index_select(0, self.tops), flow
            flows = tree_parts.Flows(sums, above)
            tree.backward(own, nodes, walk, products, flows, precision, below)
            step = partial(tree_weights.step, own, nodes, walk, products, flows)
            add = partial(tree_weights.statistics, nodes, walk, products, flows)
        first = statistics[0]
        if first is None:
            return None
        if isinstance(first, Step):
            return partial(step, first.on(weights[0]), precision, first.pseudo_on(weights[0]))
        return partial(add, self._weights(statistics), precision)  # type: ignore[arg-type]

    def choose(self, weights: list[Tensor], choices: Choices, values: Values | None) -> None:
        """Draw the choices of all nodes below the topmost sums, in one launch."""
        from einet.kernels.triton import linear_choices

        own = self._weights([weight.contiguous() for weight in weights])
        v = None if values is None else values.body.v
        linear_choices.choose_tree(own, v, self._edges(), choices.body, choices.seed)
