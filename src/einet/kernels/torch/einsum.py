"""The einsum layer in plain torch, S_lk = W_lkij N_li N'_lj (eq. 5), in float32 and float64.

Outer products are formed in blocks of bounded size and never stored: a block stays in a core's
cache on a CPU and fills the machine on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from einet.kernels.memory import NodeRows, block_bytes, blocks, rows_at_once, scratch
from einet.kernels.nodes import Nodes, add_product, finish, per_sum
from einet.kernels.update import Collector

__all__ = ["Children", "einsum_backward", "einsum_forward"]


@dataclass
class Children:
    """The two children of each of L sums: I entries on the left, J on the right.

    Without ``right`` the second factor is the constant 1, and J = 1.
    """

    left: NodeRows
    right: NodeRows | None
    num_left: int
    num_right: int

    def take(self, v: Tensor, part: slice) -> tuple[Tensor, Tensor]:
        """Values ``[part, I, 1, batch]`` and ``[part, 1, J, batch]`` of both."""
        left = self.left.take(v, part, "left")[:, : self.num_left, None]
        if self.right is None:
            return left, v.new_ones(1).expand(left.shape[0], 1, 1, v.shape[-1])
        return left, self.right.take(v, part, "right")[:, None, : self.num_right]

    def log_scale(self, m: Float[Tensor, "nodes batch"]) -> Float[Tensor, "L batch"]:
        """The log-scale of their product."""
        total = m.index_select(0, self.left.index)
        return total if self.right is None else total.add_(m.index_select(0, self.right.index))


def einsum_forward(
    weight: Float[Tensor, "L K_out IJ"],
    nodes: Nodes,
    children: Children,
    out: Nodes,
    maximise: bool = False,
) -> None:
    """One einsum layer into ``out``; with ``maximise`` the sum over (i, j) becomes a maximum."""
    num, outputs, options = weight.shape
    batch = nodes.v.shape[-1]
    cell = options * weight.element_size() * (outputs if maximise else 1)
    budget, at_once = block_bytes(weight.device), rows_at_once(weight.device)
    row_blocks, column_blocks = blocks(num, batch, cell, budget, at_once)
    for rows in row_blocks:
        left, right = children.take(nodes.v, rows)
        for columns in column_blocks:
            product = _outer(left[..., columns], right[..., columns]).flatten(1, 2)
            if maximise:
                out.v[rows, :, columns] = (weight[rows].unsqueeze(-1) * product.unsqueeze(1)).amax(
                    2
                )
            elif len(column_blocks) == 1:
                torch.bmm(weight[rows], product, out=out.v[rows])
            else:
                out.v[rows, :, columns] = torch.bmm(weight[rows], product)
    finish(out.v, children.log_scale(nodes.m), out)


def einsum_backward(
    weight: Float[Tensor, "L K_out IJ"],
    nodes: Nodes,
    children: Children,
    sums: Nodes,
    flow: Float[Tensor, "L K_out batch"],
    statistics: Collector | None,
    child_flow: Float[Tensor, "nodes K batch"],
    first: bool = False,
) -> None:
    """Add the children's flows to ``child_flow``; hand over ∂/∂W (n of eq. 6) if asked.

    With ``first`` they are written: nothing is there yet, and no child occurs twice.
    """
    num, _, options = weight.shape
    batch = nodes.v.shape[-1]
    bring = NodeRows.put_ if first else NodeRows.add_
    cell = options * weight.element_size()
    budget, at_once = block_bytes(weight.device), rows_at_once(weight.device)
    row_blocks, column_blocks = blocks(num, batch, cell, budget, at_once)
    for rows in row_blocks:
        left, right = children.take(nodes.v, rows)
        to_left, to_right = torch.empty_like(left[:, :, 0]), torch.empty_like(right[:, 0])
        room = None if statistics is None else statistics.room(rows)
        fresh = statistics is not None and statistics.fresh
        for columns in column_blocks:
            above = per_sum(flow, sums, rows, columns)
            product = _outer(left[..., columns], right[..., columns])
            if room is not None:
                add_product(room, above, product.flatten(1, 2).transpose(1, 2), fresh)
                fresh = False
            below = scratch("below", product.shape, product)
            torch.bmm(weight[rows].transpose(1, 2), above, out=below.flatten(1, 2))
            below *= product
            torch.sum(below, 2, out=to_left[..., columns])
            torch.sum(below, 1, out=to_right[..., columns])
        bring(children.left, child_flow[:, : children.num_left], rows, to_left)
        if children.right is not None:
            bring(children.right, child_flow[:, : children.num_right], rows, to_right)
        if statistics is not None:
            statistics.done(rows)


def _outer(left: Tensor, right: Tensor) -> Float[Tensor, "part I J columns"]:
    """The outer product over entries, in scratch memory."""
    shape = (left.shape[0], left.shape[1], right.shape[2], left.shape[-1])
    return torch.mul(left, right, out=scratch("product", shape, left))
