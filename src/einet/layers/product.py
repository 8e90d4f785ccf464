"""What layers of sums over products share: where gradients go on the fused path."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.layers.base import SumLayer

__all__ = ["ProductLayer"]


class ProductLayer(SumLayer):
    """A layer of sums over products of nodes of the body, any of which may have many parents.

    Its edges are numbered in the order of :meth:`sources`. Kernels write the gradients of edge e to
    row ``rows[e]`` of :meth:`room`, added to what is there where ``add[e]`` is 1; then
    :meth:`settle` is called.
    """

    has_fused: ClassVar = True
    needs_scales = False
    rows: Int[Tensor, " edges"]
    add: Int[Tensor, " edges"]
    shared: Int[Tensor, " children"]
    shared_add: Int[Tensor, " children"]
    shared_order: Int[Tensor, " edges"]
    shared_ends: Int[Tensor, " children_1"]

    def expect(self, reached: set[int], num_leaf_nodes: int) -> None:
        """Settle which gradients are written and which added to those of layers above.

        Where sums of this layer share a child, every edge first gets a row of its own, and the
        rows of each child are then added up: the order does not depend on chance.
        """
        self.num_leaf_nodes = num_leaf_nodes
        nodes = np.array(self.sources())
        children, counts = np.unique(nodes, return_counts=True)
        known = np.fromiter(reached, dtype=np.int64, count=len(reached))
        if len(children) == len(nodes):
            rows, add = nodes, np.isin(nodes, known)
            self.first = not add.any()
            order = children = counts = np.zeros(0, dtype=np.int64)
        else:
            rows, add = np.arange(len(nodes)), np.zeros(len(nodes), dtype=bool)
            order = np.argsort(nodes, kind="stable")
        plan = {
            "rows": rows,
            "add": add.astype(np.int32),
            "shared": children,
            "shared_add": np.isin(children, known).astype(np.int32),
            "shared_order": order,
            "shared_ends": np.concatenate([[0], np.cumsum(counts)]),
        }
        for name, numbers in plan.items():
            self.register_buffer(name, torch.tensor(numbers), persistent=False)

    def room(
        self, below: Float[Tensor, "nodes K batch"], entries: int
    ) -> Float[Tensor, "rows K_edge batch"]:
        """What the rows are rows of: the children themselves, unless some of them are shared.

        Args:
            below: The gradients of all nodes that may be children.
            entries: The entries of a child.

        Example:
            >>> from einet.layers import EinsumLayer
            >>> layer = EinsumLayer([0], [1], num_left=2, num_right=2, num_outputs=3, start=2)
            >>> layer.expect(set(), num_leaf_nodes=2)
            >>> below = torch.zeros(2, 2, 1)
            >>> layer.room(below, entries=2) is below
            True
        """
        if not len(self.shared):
            return below
        return below.new_empty(len(self.rows), entries, below.shape[-1])

    def settle(
        self,
        room: Float[Tensor, "rows K_edge batch"],
        below: Float[Tensor, "nodes K batch"],
        entries: int,
    ) -> None:
        """Bring what has been written to :meth:`room` to the children.

        Args:
            room: What :meth:`room` returned.
            below: The gradients of all nodes that may be children.
            entries: The entries of a child.

        Example:
            >>> from einet.layers import EinsumLayer
            >>> layer = EinsumLayer([0], [1], num_left=2, num_right=2, num_outputs=3, start=2)
            >>> layer.expect(set(), num_leaf_nodes=2)
            >>> below = torch.ones(2, 2, 1)
            >>> layer.settle(layer.room(below, entries=2), below, entries=2)  # it is there already
            >>> below.sum().item()
            4.0
        """
        if len(self.shared):
            from einet.kernels.triton import flows

            where = (self.shared_order, self.shared_ends, self.shared, self.shared_add)
            flows.add_up(room, *where, entries, below)
