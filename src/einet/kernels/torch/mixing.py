"""The mixing layer in plain torch, S_nk = Σ_c w_nck N_nck (appendix B)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.memory import block_bytes, blocks, scratch
from einet.kernels.nodes import Nodes, finish, per_sum
from einet.kernels.update import Collector

__all__ = ["mixing_backward", "mixing_forward"]


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
