"""The arithmetic of the leaves in torch: θ·T(x) − A summed over a leaf's scope, and its statistics.

Two kernels serve all families: a matrix product over the stacked statistics of a leaf's variables,
and a table look-up for categorical variables. Both work through leaves and samples in blocks, so
that neither a ``batch × pairs × K`` tensor nor the gathered statistics of all leaves ever exist.
Products are taken in float64: with standardised statistics the expanded Gaussian loses nothing
there, and as one small matrix product for each leaf it is faster than the centred form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.memory import NodeRows, block_bytes, blocks, scratch

__all__ = ["Evidence", "FusedEvidence", "add_statistics", "log_values"]


@dataclass
class Evidence:
    """A batch as the leaves of one family see it; variables first, samples last.

    ``log_h`` is given as ``constant`` (one number a variable) where it does not depend on x, which
    saves a row of every product; ``observed`` is None where nothing is missing.
    """

    statistics: Float[Tensor, "V S batch"] | None
    states: Int[Tensor, "V batch"] | None
    log_h: Float[Tensor, "V batch"] | None
    constant: Float[Tensor, " V"]
    observed: Float[Tensor, "V batch"] | None
    batch: int

    @classmethod
    def of(
        cls,
        family: ExponentialFamily,
        x: Float[Tensor, "batch V"],
        observed: Bool[Tensor, "batch V"] | None,
    ) -> Evidence:
        log_h = family.log_h(x)
        first = log_h[:1]
        fixed = torch.equal(log_h, first.expand_as(log_h)) and bool((first != -torch.inf).all())
        seen = None if observed is None else observed.T.to(torch.float64).contiguous()
        statistics = states = None
        if family.kernel == "table":
            states = x.T.clamp(0, family.num_statistics - 1).long().contiguous()
        else:
            statistics = family.T(x).permute(1, 2, 0)
            statistics = statistics.contiguous() if seen is None else statistics * seen.unsqueeze(1)
        if fixed:
            varying, constant = None, first[0]
        else:
            varying, constant = log_h.T.contiguous(), torch.zeros_like(first[0])
            if observed is not None:
                varying = torch.where(observed.T, varying, 0.0)
        return cls(statistics, states, varying, constant, seen, x.shape[0])


@dataclass
class FusedEvidence:
    """The same for the fused kernels, which read one tensor of ``cells``; see ``kernels/triton``.

    ``"centred"``: standardised values, NaN where missing (float32), and ``holes``, which says where
    to look for those. ``"table"``: states, −1 where missing, −2 where impossible (int32).
    ``"binary"``: two bits a sample, many samples a word (int32). ``"product"``: statistics and a
    row that is 1 where there is a value (float64), all of them 0 where there is none, as is
    ``log_h``.
    """

    kind: Literal["product", "table", "centred", "binary"]
    batch: int
    cells: Float[Tensor, "V ... batch"] | Int[Tensor, "V batch_or_words"]
    log_h: Float[Tensor, "V batch"] | None = None
    holes: Int[Tensor, "V blocks"] | None = None


def log_values(
    theta: Float[Tensor, "K pairs S"],
    A: Float[Tensor, "K pairs"],
    columns: Int[Tensor, "n s"],
    evidence: Evidence,
    if_missing: Float[Tensor, "K pairs"] | None = None,
) -> Iterator[tuple[slice, slice, Float[Tensor, "part K columns"]]]:
    """Log densities of all leaves of a block, one piece (leaves, samples, values) at a time.

    The values of a piece are the caller's to change, until the next piece is asked for.

    A missing cell counts as ``if_missing``: 0 by default, which integrates it out.
    """
    K, (n, s) = A.shape[0], columns.shape
    offset = evidence.constant[columns.reshape(-1)] - A
    values = _product_values if evidence.states is None else _table_values
    for part, piece, log_value in values(theta, offset, columns, evidence):
        if if_missing is not None and evidence.observed is not None:
            missing = 1 - evidence.observed[:, piece][columns[part]]
            log_value = log_value + if_missing.view(K, n, s).transpose(0, 1)[part] @ missing
        yield part, piece, log_value


_Pieces = Iterator[tuple[slice, slice, Tensor]]


def _product_values(theta: Tensor, offset: Tensor, columns: Tensor, evidence: Evidence) -> _Pieces:
    K, (n, s) = theta.shape[0], columns.shape
    assert evidence.statistics is not None
    # log h(x) and the presence of a value are further statistics, with coefficients 1 and −A.
    table, factor, bias = evidence.statistics, theta, None
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


def _blocks(columns: Tensor, evidence: Evidence, numbers: int) -> tuple[list[slice], list[slice]]:
    """Pieces of (leaves, samples), with so many float64 numbers for each."""
    return blocks(len(columns), evidence.batch, 8 * numbers, block_bytes(columns.device))


def _gather(table: Float[Tensor, "V width batch"], columns: Int[Tensor, "part s"]) -> Tensor:
    """The statistics of some leaves' variables, ``[part, s·width, batch]``, in scratch memory."""
    part, s = columns.shape
    out = scratch("gathered", (part * s, *table.shape[1:]), table)
    torch.index_select(table, 0, columns.reshape(-1), out=out)
    return out.view(part, s * table.shape[1], -1)


def _table_values(theta: Tensor, offset: Tensor, columns: Tensor, evidence: Evidence) -> _Pieces:
    K, (n, s) = theta.shape[0], columns.shape
    S = theta.shape[-1]
    table = (theta + offset.unsqueeze(-1)).view(K, n, s * S).permute(1, 2, 0).contiguous()
    for part, piece, index, weight in _bags(columns, evidence, K, S):
        rows = table[part].reshape(-1, K)
        values = F.embedding_bag(index, rows, mode="sum", per_sample_weights=weight)
        values = values.view(part.stop - part.start, -1, K).transpose(1, 2)
        if evidence.log_h is not None:
            extra = evidence.log_h[:, piece][columns[part]].sum(1)
            values = values + extra.unsqueeze(1)
        yield part, piece, values


def _bags(
    columns: Tensor, evidence: Evidence, K: int, S: int
) -> Iterator[tuple[slice, slice, Tensor, Tensor | None]]:
    """Pieces of (leaves, samples) with the rows to sum in a table of the piece's own leaves."""
    s = columns.shape[1]
    parts, pieces = _blocks(columns, evidence, s + K)
    assert evidence.states is not None
    for part in parts:
        position = torch.arange((part.stop - part.start) * s, device=columns.device) * S
        position = position.view(-1, s, 1)
        for piece in pieces:
            index = evidence.states[:, piece][columns[part]] + position
            index = index.transpose(1, 2).reshape(-1, s)
            weight = None
            if evidence.observed is not None:
                weight = evidence.observed[:, piece][columns[part]].transpose(1, 2).reshape(-1, s)
            yield part, piece, index, weight


def add_statistics(
    flow: Float[Tensor, "leaf_nodes K batch"],
    leaves: NodeRows,
    columns: Int[Tensor, "n s"],
    evidence: Evidence,
    total: Float[Tensor, "K pairs"],
    weighted: Float[Tensor, "K pairs S"],
) -> None:
    """Add Σ p_L to ``total`` and Σ p_L T(x) to ``weighted``; a missing cell adds to neither."""
    n, s = columns.shape
    K, _, S = weighted.shape
    if evidence.states is not None:
        _add_table_statistics(flow, leaves, columns, evidence, total, weighted)
        return
    table = evidence.statistics
    assert table is not None
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


def _add_table_statistics(
    flow: Tensor,
    leaves: NodeRows,
    columns: Tensor,
    evidence: Evidence,
    total: Tensor,
    weighted: Tensor,
) -> None:
    s = columns.shape[1]
    K, _, S = weighted.shape
    for part, piece, index, weight in _bags(columns, evidence, K, S):
        count = part.stop - part.start
        p = leaves.take(flow, part, "flow")[:, :, piece].double().transpose(1, 2).reshape(-1, K)
        # The gradient of the look-up adds p up by table row; tensors of inference mode have none.
        with torch.inference_mode(False), torch.enable_grad():
            rows = torch.zeros(count * s * S, K, dtype=p.dtype, device=p.device, requires_grad=True)
            weight = None if weight is None else weight.clone()
            summed = F.embedding_bag(index.clone(), rows, mode="sum", per_sample_weights=weight)
            (counts,) = torch.autograd.grad(summed, rows, p.clone())
        counts = counts.view(count * s, S, K).permute(2, 0, 1)
        pairs = slice(part.start * s, part.stop * s)
        weighted[:, pairs] += counts
        total[:, pairs] += counts.sum(-1)
