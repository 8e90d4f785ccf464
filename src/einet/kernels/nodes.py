"""Values of nodes, as all kernels of the inner layers keep them.

A node's K values are kept as ``(v, m)``: ``v[node, K, batch]`` in [0, 1] with maximum 1 over K,
and one log-scale ``m[node, batch]`` (float64), so that the node's value is ``v·exp(m)``. All-zero
``v`` with ``m = −∞`` is an impossible node. ``peak[node, batch]`` is the maximum a layer divided
by; the backward pass treats it and ``m`` as constants: the two effects cancel. (The sums of a tree
are not divided, where :mod:`einet.kernels.triton.tree` makes them: they need no maximum.)

What runs backwards is the *flow* ``v·∂log P/∂v``, the posterior probability that a sample came
through that entry. Flows stay in [0, 1] however small ``v`` is, a leaf's flow is its p_L, and one
product serves both children of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from einet.kernels.memory import scratch

__all__ = ["Nodes", "add_product", "finish", "per_sum", "scale_", "scaled"]


@dataclass
class Nodes:
    """Values of many nodes for one batch; see the module's description of ``(v, m)``."""

    v: Float[Tensor, "nodes K batch"]
    m: Float[Tensor, "nodes batch"]
    peak: Float[Tensor, "nodes batch"]

    @classmethod
    def empty(cls, nodes: int, K: int, batch: int, like: Tensor) -> Nodes:
        """Values yet to be written."""
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


def add_product(total: Tensor, a: Tensor, b: Tensor, fresh: bool) -> None:
    """``total += a @ b``, or ``total = a @ b`` where it holds nothing yet."""
    if fresh:
        torch.bmm(a, b, out=total)
    else:
        total.baddbmm_(a, b)
