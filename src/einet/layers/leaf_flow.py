"""Flows into leaves, and where they are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.leaf_kernel import Pairs

__all__ = ["LeafFlow"]


@dataclass
class LeafFlow:
    """p_L of eq. (6) of every leaf: that of leaf n is ``flow[rows[n]]``, or ``flow[n]`` without.

    All leaves below one sum have the same flow. Where fused kernels keep it once, as many rows
    suffice as there are sums.
    """

    flow: Float[Tensor, "rows K batch"]
    rows: Int[Tensor, " leaf_nodes"] | None = None

    @classmethod
    def of(cls, flow: LeafFlow | Float[Tensor, "leaf_nodes K batch"]) -> LeafFlow:
        """Flows as they are, or a tensor with those of each leaf."""
        return flow if isinstance(flow, LeafFlow) else cls(flow)

    def each(self) -> Float[Tensor, "leaf_nodes K batch"]:
        """The flow of each leaf."""
        return self.flow if self.rows is None else self.flow.index_select(0, self.rows)

    def found_by(self, pairs: Pairs) -> Pairs:
        """A block of leaves whose numbers say where their flows are, not which nodes they are."""
        if self.rows is None:
            return pairs
        return replace(pairs, leaves=self.rows.index_select(0, pairs.leaves))
