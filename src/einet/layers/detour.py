"""How a layer without fused kernels takes part in the fused path: by torch, and back.

Values are the same on both paths. What runs backwards is not: torch kernels add flows
v·∂log P/∂v to zeros, the fused ones write gradients ∂log P/∂v to fresh memory, except for leaves,
and add only where a layer above has written before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

__all__ = ["Detour"]


class Detour(nn.Module):
    """The children of one layer, and which of them have gradients already when it is its turn.

    Args:
        sources: The nodes that the layer reads.
        reached: Those for which layers above have written gradients.
        num_leaf_nodes: The first so many nodes are leaves.
    """

    children_index: Int[Tensor, " children"]
    add: Bool[Tensor, "children 1 1"]
    is_leaf: Bool[Tensor, "children 1 1"]

    def __init__(
        self, sources: Sequence[int], reached: Collection[int], num_leaf_nodes: int
    ) -> None:
        super().__init__()
        nodes = sorted(set(sources))
        tables = {
            "children_index": torch.tensor(nodes),
            "add": torch.tensor([node in reached for node in nodes]).view(-1, 1, 1),
            "is_leaf": torch.tensor([node < num_leaf_nodes for node in nodes]).view(-1, 1, 1),
        }
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    def flows_of(
        self, gradients: Float[Tensor, "nodes K batch"], v: Float[Tensor, "nodes K batch"]
    ) -> Float[Tensor, "nodes K batch"]:
        """The flows of inner nodes from their gradients."""
        return torch.where(v > 0, gradients * v, 0.0)

    def room(self, flow: dict[str, Tensor], source: str) -> Float[Tensor, "nodes K batch"]:
        """Zeros for the flows of the children, in memory that all layers of a pass share."""
        key = f"flows of {source}"
        if key not in flow:
            flow[key] = torch.empty_like(flow[source])
        return flow[key].index_fill_(0, self.children_index, 0.0)

    def bring(
        self,
        room: Float[Tensor, "nodes K batch"],
        v: Float[Tensor, "nodes K batch"],
        below: Float[Tensor, "nodes K batch"],
    ) -> None:
        """Bring the flows of the children to where the fused kernels look for them."""
        index = self.children_index
        flows, v = room.index_select(0, index), v.index_select(0, index)
        new = torch.where(self.is_leaf, flows, torch.where(v > 0, flows / v, 0.0))
        before = below.index_select(0, index)
        below.index_copy_(0, index, torch.where(self.add, before + new, new))
