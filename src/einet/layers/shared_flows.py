"""Flows of circuits whose sums are one tree: kept once for each sum, in memory of leaf values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from einet.kernels.update import Statistic
from einet.layers.base import SumLayer, Values
from einet.layers.leaf_flow import LeafFlow
from einet.layers.linear import LinearLayer
from einet.layers.tree import LinearTree

__all__ = ["SharedFlows"]


class SharedFlows(nn.Module):
    """Where flows are, if leaves have all of theirs from the sums of one tree and from the root.

    All leaves below a sum have the same flow. So there is one row for each sum of the tree, and
    after these one for each child of the root: flows of leaves, gradients of the tree's topmost
    sums. Values of leaves are not asked for once those above are known, except for the root's own
    children. Flows take their place where there is room between these.

    Args:
        tree: All sums but the root.
        root: The root.
    """

    leaf_rows: Int[Tensor, " leaf_nodes"]
    top_rows: Int[Tensor, " tops"]
    root_rows: Int[Tensor, " children"]

    def __init__(self, tree: LinearTree, root: LinearLayer) -> None:
        super().__init__()
        children, sums, leaves = root.sources(), len(tree.parents), tree.num_leaf_nodes
        rows = tree.leaf_rows.tolist()
        for row, node in enumerate(children, start=sums):
            if node < leaves:
                rows[node] = row
        tops = [sums + children.index(tree.first_sum + top) for top in tree.tops.tolist()]
        plan = {"leaf_rows": rows, "top_rows": tops, "root_rows": list(range(len(children)))}
        for name, numbers in plan.items():
            self.register_buffer(name, torch.tensor(numbers), persistent=False)
        self.num_sums, self.num_rows = sums, sums + len(children)
        kept = [-1, *sorted(node for node in children if node < leaves), leaves]
        gaps = [a + 1 for a, b in pairwise(kept) if b - a > self.num_rows]
        self._begin = gaps[0] if gaps else None

    @classmethod
    def find(cls, layers: Sequence[SumLayer], trees: Sequence[LinearTree]) -> SharedFlows | None:
        """Those of a circuit with these layers and trees; None where it is of another kind."""
        if len(trees) != 1 or not trees[0].shares_flows or trees[0].slots.start > 0:
            return None
        (tree,), others = trees, layers[trees[0].slots.stop :]
        (root,) = others if len(others) == 1 else (None,)
        if not isinstance(root, LinearLayer) or root.target != "top" or not root.first:
            return None
        return cls(tree, root)

    def room(self, values: Values) -> Float[Tensor, "rows K batch"]:
        """Memory for the flows of a backward pass."""
        v = values.body.v
        if self._begin is None:
            return torch.empty_like(v[: self.num_rows])
        return v[self._begin : self._begin + self.num_rows]

    def backpropagate(
        self,
        part: LinearTree | SumLayer,
        weights: list[Tensor],
        values: Values,
        flow: dict[str, Tensor],
        statistics: list[Statistic],
    ) -> Callable[[], None] | None:
        """One part of the backward pass, the root or the tree below it; see its method."""
        room = flow["shared"]
        if isinstance(part, LinearTree):
            above = room.index_select(0, self.top_rows)
            return part.backpropagate(weights, values, room, statistics, above)
        assert isinstance(part, LinearLayer)
        below = room[self.num_sums :]
        (weight,), (statistic,) = weights, statistics
        return part.backpropagate_fused(
            weight, values, flow["top"], below, statistic, self.root_rows
        )

    def into_leaves(self, room: Float[Tensor, "rows K batch"]) -> LeafFlow:
        """The flows of leaves, once all are known."""
        return LeafFlow(room, self.leaf_rows)
