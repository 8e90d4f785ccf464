"""The arithmetic of the inner layers in plain torch: any device, float32 and float64.

A node's K values are kept as ``(v, m)``: ``v[node, K, batch]`` in [0, 1] with maximum 1 over K,
and one log-scale ``m[node, batch]`` (float64), so that the node's value is ``v·exp(m)``. All-zero
``v`` with ``m = −∞`` is an impossible node. ``peak[node, batch]`` is the maximum a layer divided
by; the backward pass treats it and ``m`` as constants: the two effects cancel.

What runs backwards is the *flow* ``v·∂log P/∂v``, the posterior probability that a sample came
through that entry. Flows stay in [0, 1] however small ``v`` is, a leaf's flow is its p_L, and one
product serves both children of a sum.

Outer products are formed in blocks of bounded size and never stored: a block stays in a core's
cache on a CPU and fills the machine on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.memory import Rows, block_bytes, blocks, rows_at_once, scratch
from einet.kernels.update import Collector

__all__ = [
    "Children",
    "Nodes",
    "add_product",
    "einsum_backward",
    "einsum_forward",
    "finish",
    "mixing_backward",
    "mixing_forward",
    "per_sum",
    "scale_",
    "scaled",
]


@dataclass
class Nodes:
    """Values of many nodes for one batch; see the module's description of ``(v, m)``."""

    v: Float[Tensor, "nodes K batch"]
    m: Float[Tensor, "nodes batch"]
    peak: Float[Tensor, "nodes batch"]

    @classmethod
    def empty(cls, nodes: int, K: int, batch: int, like: Tensor) -> Nodes:
        new = like.new_empty
        return cls(
            v=new(nodes, K, batch),
            m=new(nodes, batch, dtype=torch.float64),
            peak=new(nodes, batch),
        )

    def __getitem__(self, item: slice) -> Nodes:
        return Nodes(self.v[item], self.m[item], self.peak[item])


def scaled(log_values: Float[Tensor, "nodes K batch"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``(v, m)`` of given log values; −∞ throughout gives ``v = 0``, ``m = −∞``."""
    m = log_values.amax(1)
    shift = m.clamp(min=torch.finfo(m.dtype).min)
    v = (log_values - shift.unsqueeze(1)).to(dtype).exp_()
    return v, m.double()


def scale_(log_values: Tensor, v: Tensor, m: Tensor) -> None:
    """Like :func:`scaled`, into given tensors; ``log_values`` is consumed."""
    torch.amax(log_values, 1, out=m)
    log_values -= m.clamp(min=torch.finfo(m.dtype).min).unsqueeze(1)
    v.copy_(log_values).exp_()


def finish(values: Tensor, log_scale: Tensor, out: Nodes) -> None:
    """Divide by the largest of K values and move it into the log-scale."""
    torch.amax(values, 1, out=out.peak)
    torch.add(log_scale, out.peak.double().log(), out=out.m)
    values /= out.peak.unsqueeze(1).clamp(min=torch.finfo(values.dtype).tiny)


def per_sum(flow: Tensor, nodes: Nodes, rows: slice, columns: slice) -> Tensor:
    """∂log P/∂S of sums before the division by their peak, in scratch memory; zero where they are.

    All are of a layer; rows are of its sums and columns of samples.
    """
    v, peak, flow = nodes.v[rows, :, columns], nodes.peak[rows, columns], flow[rows, :, columns]
    sums = torch.mul(v, peak.unsqueeze(1), out=scratch("sums", v.shape, v))
    result = torch.div(flow, sums, out=scratch("per sum", v.shape, v))
    return result.masked_fill_(sums == 0, 0.0)


# -- einsum layer: S_lk = W_lkij N_li N'_lj (eq. 5) ---------------------------------------------


@dataclass
class Children:
    """The two children of each of L sums: I entries on the left, J on the right.

    Without ``right`` the second factor is the constant 1, and J = 1.
    """

    left: Rows
    right: Rows | None
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
    bring = Rows.put_ if first else Rows.add_
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


def add_product(total: Tensor, a: Tensor, b: Tensor, fresh: bool) -> None:
    """``total += a @ b``, or ``total = a @ b`` where it holds nothing yet."""
    if fresh:
        torch.bmm(a, b, out=total)
    else:
        total.baddbmm_(a, b)


def _outer(left: Tensor, right: Tensor) -> Float[Tensor, "part I J columns"]:
    """The outer product over entries, in scratch memory."""
    shape = (left.shape[0], left.shape[1], right.shape[2], left.shape[-1])
    return torch.mul(left, right, out=scratch("product", shape, left))


# -- mixing layer: S_nk = Σ_c w_nck N_nck (appendix B) ------------------------------------------


def mixing_forward(
    weight: Float[Tensor, "n C K"],
    children: Nodes,
    index: Int[Tensor, "n C"],
    out: Nodes,
    maximise: bool = False,
) -> None:
    """Element-wise mixtures of C children each, into ``out``."""
    num, count, K = weight.shape
    batch = children.v.shape[-1]
    cell = count * K * children.v.element_size()
    row_blocks, column_blocks = blocks(num, batch, cell, block_bytes(children.v.device))
    log_scale = torch.empty_like(out.m)
    for rows in row_blocks:
        relative, log_scale[rows] = _relative_scales(children.m, index[rows])
        relative = relative.to(weight.dtype)
        picked = index[rows].reshape(-1)
        for columns in column_blocks:
            terms = _terms(children.v[:, :K, columns], picked, relative[..., columns])
            terms *= weight[rows].unsqueeze(-1)
            out.v[rows, :, columns] = terms.amax(1) if maximise else terms.sum(1)
    finish(out.v, log_scale, out)


def mixing_backward(
    weight: Float[Tensor, "n C K"],
    children: Nodes,
    index: Int[Tensor, "n C"],
    sums: Nodes,
    flow: Float[Tensor, "n K batch"],
    statistics: Collector | None,
    child_flow: Float[Tensor, "nodes K_max batch"],
) -> None:
    """Write the children's flows to ``child_flow``; hand over ∂/∂w if asked.

    Every child of a mixing layer is a simple sum with this one parent, so writing is enough.
    """
    num, count, K = weight.shape
    batch = flow.shape[-1]
    cell = count * K * flow.element_size()
    row_blocks, column_blocks = blocks(num, batch, cell, block_bytes(flow.device))
    for rows in row_blocks:
        relative = _relative_scales(children.m, index[rows])[0].to(weight.dtype)
        picked = index[rows].reshape(-1)
        room = None if statistics is None else statistics.room(rows)
        if room is not None and statistics is not None and statistics.fresh:
            room.zero_()
        for columns in column_blocks:
            terms = _terms(children.v[:, :K, columns], picked, relative[..., columns])
            terms *= per_sum(flow, sums, rows, columns).unsqueeze(1)
            if room is not None:
                room += terms.sum(-1)
            terms *= weight[rows].unsqueeze(-1)
            child_flow[picked, :K, columns] = terms.flatten(0, 1)
        if statistics is not None:
            statistics.done(rows)


def _terms(v: Tensor, picked: Tensor, relative: Tensor) -> Float[Tensor, "part C K columns"]:
    """Values of the children on their regions' scales, in scratch memory."""
    part, count, columns = relative.shape
    terms = scratch("terms", (len(picked), *v.shape[1:]), v)
    terms = torch.index_select(v, 0, picked, out=terms).view(part, count, -1, columns)
    terms *= relative.unsqueeze(2)
    return terms


def _relative_scales(m: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """exp(m_c − M) and M = max_c m_c for children ``index[n, C]``; zero where M = −∞."""
    scales = m.index_select(0, index.reshape(-1)).view(*index.shape, -1)
    largest = scales.amax(1)
    shift = largest.clamp(min=torch.finfo(largest.dtype).min)
    return (scales - shift.unsqueeze(1)).exp_(), largest
