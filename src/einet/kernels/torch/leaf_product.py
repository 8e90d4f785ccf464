"""Leaves of any family in torch: θ·T(x) as one matrix product for each leaf, in float64."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.leaf_kernel import Evidence, LeafKernel, Pieces
from einet.kernels.memory import NodeRows, block_bytes, blocks, scratch

__all__ = ["ProductKernel"]


class ProductKernel(LeafKernel):
    """Cells are statistics T(x), ``[V, S, batch]``, with zeros where a value is missing."""

    def cells(
        self,
        family: ExponentialFamily,
        x: Float[Tensor, "batch V"],
        observed: Float[Tensor, "V batch"] | None,
    ) -> Tensor:
        statistics = family.T(x).permute(1, 2, 0)
        return statistics.contiguous() if observed is None else statistics * observed.unsqueeze(1)

    def numbers(self, family: ExponentialFamily) -> int:
        return family.num_statistics

    def log_values(
        self,
        theta: Float[Tensor, "K pairs S"],
        offset: Float[Tensor, "K pairs"],
        columns: Int[Tensor, "n s"],
        evidence: Evidence,
    ) -> Pieces:
        K, (n, s) = theta.shape[0], columns.shape
        # log h(x) and the presence of a value are further statistics, with coefficients 1 and −A.
        table, factor, bias = evidence.cells, theta, None
        if evidence.log_h is not None:
            table = torch.cat([table, evidence.log_h.unsqueeze(1)], 1)
            factor = torch.cat([factor, torch.ones_like(offset).unsqueeze(-1)], -1)
        if evidence.observed is not None:
            table = torch.cat([table, evidence.observed.unsqueeze(1)], 1)
            factor = torch.cat([factor, offset.unsqueeze(-1)], -1)
        else:
            bias = offset.view(K, n, s).sum(-1).T.unsqueeze(-1)
        width = table.shape[1]
        factor = factor.reshape(K, n, s * width).transpose(0, 1).contiguous()
        parts, pieces = _blocks(columns, evidence, s * width + K)
        for piece in pieces:
            some = table if len(pieces) == 1 else table[:, :, piece].contiguous()
            for part in parts:
                gathered = _gather(some, columns[part])
                values = scratch("log values", (gathered.shape[0], K, gathered.shape[-1]), gathered)
                torch.bmm(factor[part], gathered, out=values)
                yield part, piece, values if bias is None else values.add_(bias[part])

    def add_statistics(
        self,
        flow: Float[Tensor, "leaf_nodes K batch"],
        leaves: NodeRows,
        columns: Int[Tensor, "n s"],
        evidence: Evidence,
        total: Float[Tensor, "K pairs"],
        weighted: Float[Tensor, "K pairs S"],
    ) -> None:
        n, s = columns.shape
        K, _, S = weighted.shape
        table = evidence.cells
        if evidence.observed is not None:
            table = torch.cat([table, evidence.observed.unsqueeze(1)], 1)
        width = table.shape[1]
        parts, pieces = _blocks(columns, evidence, s * width + K)
        for piece in pieces:
            some = table if len(pieces) == 1 else table[:, :, piece].contiguous()
            for part in parts:
                gathered = _gather(some, columns[part])
                some_flow = leaves.take(flow, part, "flow")[:, :, piece]
                p = scratch("p", some_flow.shape, gathered).copy_(some_flow)
                sums = scratch("sums", (*p.shape[:2], s * width), gathered)
                torch.bmm(p, gathered.transpose(1, 2), out=sums)
                by_pair = sums.view(-1, K, s, width).transpose(0, 1)
                weighted.view(K, n, s, S)[:, part].add_(by_pair[..., :S])
                share = p.sum(-1).T.unsqueeze(-1) if evidence.observed is None else by_pair[..., S]
                total.view(K, n, s)[:, part].add_(share)


def _blocks(columns: Tensor, evidence: Evidence, numbers: int) -> tuple[list[slice], list[slice]]:
    """Pieces of (leaves, samples), with so many float64 numbers for each."""
    return blocks(len(columns), evidence.batch, 8 * numbers, block_bytes(columns.device))


def _gather(table: Float[Tensor, "V width batch"], columns: Int[Tensor, "part s"]) -> Tensor:
    """The statistics of some leaves' variables, ``[part, s·width, batch]``, in scratch memory."""
    part, s = columns.shape
    out = scratch("gathered", (part * s, *table.shape[1:]), table)
    torch.index_select(table, 0, columns.reshape(-1), out=out)
    return out.view(part, s * table.shape[1], -1)
