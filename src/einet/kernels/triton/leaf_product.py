"""Leaves of any family by the product θ·T(x) − A + log h(x), in float64.

The presence of a value is one more statistic, with coefficient −A: a missing cell is a row of zeros
that adds to nothing.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.leaf_kernel import FusedEvidence, FusedLeafKernel, Out, Pairs
from einet.kernels.triton.leaf_common import (
    cdiv,
    forward_tile,
    launch,
    statistics_tile,
    store_values,
)

__all__ = ["KERNEL", "FusedProductKernel"]


@triton.jit
def _forward(
    theta,
    A,
    statistics,
    log_h,
    leaves,
    columns,
    v,
    v_node,
    v_k,
    m,
    m_node,
    total,
    t_node,
    t_k,
    s,
    K,
    batch,
    pairs,
    S: tl.constexpr,
    ALONE: tl.constexpr,
    CHUNK: tl.constexpr,
    BK: tl.constexpr,
    BB: tl.constexpr,
):
    leaf = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * BB + tl.arange(0, BB)[:, None]
    k = tl.arange(0, BK)[None, :]
    sums = tl.zeros([BB, BK], tl.float64)
    base = tl.zeros([BB, 1], tl.float64)
    for start in range(0, s, CHUNK):
        for offset in tl.static_range(CHUNK):
            more = start + offset < s
            pair = leaf * s + start + offset
            column = tl.load(columns + pair, mask=more, other=0)
            there = (b < batch) & more
            entry = (k < K) & more
            base += tl.load(log_h + column * batch + b, mask=there, other=0.0)
            row = statistics + column * (S + 1) * batch + b
            cell = k.to(tl.int64) * pairs + pair
            for i in tl.static_range(S):
                t = tl.load(row + i * batch, mask=there, other=0.0)
                sums += t * tl.load(theta + cell * S + i, mask=entry, other=0.0)
            present = tl.load(row + S * batch, mask=there, other=0.0)
            sums -= present * tl.load(A + cell, mask=entry, other=0.0)
    node = tl.load(leaves + leaf)
    sums += base
    store_values(sums, node, k, b, K, batch, v, v_node, v_k, m, m_node, total, t_node, t_k, ALONE)


@triton.jit
def _backward(
    flow,
    f_node,
    f_k,
    statistics,
    leaves,
    columns,
    total,
    weighted,
    s,
    K,
    batch,
    pairs,
    S: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    BB: tl.constexpr,
):
    leaf = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * BR + tl.arange(0, BR)[:, None, None]
    k = tl.program_id(2) * BK + tl.arange(0, BK)[None, :, None]
    position, which = row // (S + 1), row % (S + 1)
    pair = leaf * s + position
    own = position < s
    column = tl.load(columns + pair, mask=own, other=0)
    node = tl.load(leaves + leaf)
    sums = tl.zeros([BR, BK, BB], tl.float64)
    for start in range(0, batch, BB):
        b = start + tl.arange(0, BB)[None, None, :]
        inside = b < batch
        p = tl.load(flow + node * f_node + k * f_k + b, mask=(k < K) & inside, other=0.0)
        from_row = statistics + (column * (S + 1) + which) * batch + b
        sums += p.to(tl.float64) * tl.load(from_row, mask=own & inside, other=0.0)
    added = tl.sum(sums, 2, keep_dims=True)
    cell = k.to(tl.int64) * pairs + pair
    known = own & (k < K)
    of_total = known & (which == S)
    count = tl.load(total + cell, mask=of_total, other=0.0)
    tl.store(total + cell, count + added, mask=of_total)
    to = weighted + cell * S + which
    of_weighted = known & (which < S)
    tl.store(to, tl.load(to, mask=of_weighted, other=0.0) + added, mask=of_weighted)


class FusedProductKernel(FusedLeafKernel):
    """Any family. Cells are statistics and a row that is 1 where there is a value (float64).

    All of them are 0 where there is none, as is ``log_h``.
    """

    by_family = True

    def evidence(
        self,
        family: ExponentialFamily,
        hyper: dict[str, Tensor],
        variables: Tensor,
        x: Tensor,
        observed: Tensor | None,
    ) -> FusedEvidence:
        columns = x.index_select(1, variables).double()
        present = ~columns.isnan()
        if observed is not None:
            present &= observed.index_select(1, variables)
        columns = torch.where(present, columns, family.filler)
        table = torch.cat([family.T(columns), torch.ones_like(columns).unsqueeze(-1)], -1)
        table = torch.where(present.unsqueeze(-1), table, 0.0).permute(1, 2, 0).contiguous()
        log_h = torch.where(present, family.log_h(columns), 0.0).T.contiguous()
        return FusedEvidence(self, len(x), table, log_h)

    def values(
        self,
        pairs: Pairs,
        evidence: FusedEvidence,
        natural: tuple[Tensor, Tensor] | None,
        out: Out,
    ) -> None:
        assert natural is not None
        theta, A = (tensor.contiguous() for tensor in natural)
        n, s, K, count = pairs.sizes
        batch = evidence.batch
        tile = forward_tile(n, s, K, batch)
        tile["CHUNK"] = min(2, tile["CHUNK"])
        launch(
            _forward, (n, cdiv(batch, tile["BB"])),
            theta, A, evidence.cells, evidence.log_h, pairs.leaves, pairs.columns, *out.arguments,
            s, K, batch, count, S=theta.shape[-1], ALONE=out.total is None, **tile,
        )  # fmt: skip

    def add_statistics(
        self, pairs: Pairs, evidence: FusedEvidence, flow: Tensor, total: Tensor, weighted: Tensor
    ) -> None:
        n, s, K, count = pairs.sizes
        width, batch = evidence.cells.shape[1:]
        tile = statistics_tile(s * width, K)
        launch(
            _backward, (n, cdiv(s * width, tile["BR"]), cdiv(K, tile["BK"])),
            flow, *flow.stride()[:2], evidence.cells, pairs.leaves, pairs.columns, total, weighted,
            s, K, batch, count, S=width - 1, **tile,
        )  # fmt: skip


KERNEL = FusedProductKernel()
