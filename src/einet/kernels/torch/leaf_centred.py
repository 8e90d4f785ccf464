"""Gaussian leaves in torch: −(z − μ)²/2σ², by a matrix product wherever that is as good.

Expanded into θ·T(z) − A(θ), the square is one small matrix product for each leaf, in float64. It
loses the digits of (z² + μ²)/σ², which are none to speak of where z and μ are a few deviations from
0, as they are for data in units of their own. Where they are not, differences come first.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.families.centring import counted_from
from einet.kernels.leaf_kernel import Evidence, Pieces
from einet.kernels.memory import NodeRows, block_bytes, blocks, scratch
from einet.kernels.torch.leaf_product import ProductKernel

__all__ = ["CentredKernel"]

# What a log density may lose to the expanded form, in nats.
_LOSS = 1e-7


class CentredKernel(ProductKernel):
    """Families with stored parameters (μ, σ²) and T(z) = (z, z²). Cells are as in the product."""

    centred: ClassVar = True

    def log_values(
        self,
        theta: Float[Tensor, "K pairs S"],
        offset: Float[Tensor, "K pairs"],
        columns: Int[Tensor, "n s"],
        evidence: Evidence,
    ) -> Pieces:
        variance = -0.5 / theta[..., 1]
        stored = torch.stack([theta[..., 0] * variance, variance], -1)
        if self.is_mild(stored[..., 0], variance, columns, evidence):
            return super().log_values(theta, offset, columns, evidence)
        # The offset has μ²/2σ² in it, which is what must not be added and taken away again.
        return self.by_differences(stored, columns, evidence)

    def is_mild(
        self,
        mean: Float[Tensor, "K pairs"],
        variance: Float[Tensor, "K pairs"],
        columns: Int[Tensor, "n s"],
        evidence: Evidence,
    ) -> bool:
        """Whether the expanded form loses nothing to speak of for these parameters and rows."""
        if evidence.batch == 0:
            return True
        if evidence.reach is None:
            evidence.reach = evidence.cells[:, 0].abs().amax(-1)
        # Bounds over all entries: this looks at every parameter, and must not take long.
        low, high = (bound.double() for bound in torch.aminmax(mean, dim=0))
        farthest = torch.maximum(-low, high) + evidence.reach[columns.reshape(-1)]
        terms = (farthest.square() / variance.amin(0).double()).amax()
        return bool(0.5 * torch.finfo(torch.float64).eps * terms <= _LOSS)

    def by_differences(
        self, stored: Float[Tensor, "K pairs 2"], columns: Int[Tensor, "n s"], evidence: Evidence
    ) -> Pieces:
        """Like ``log_values``, by stored parameters (float64) in place of θ and A."""
        K, (n, s) = len(stored), columns.shape
        mean, variance = stored.unbind(-1)
        peak = evidence.constant[columns.reshape(-1)] - 0.5 * variance.log()
        factor = (0.5 / variance).sqrt().view(K, n, s).transpose(0, 1)
        mean, peak = (each.view(K, n, s).transpose(0, 1) for each in (mean, peak))
        table, observed, log_h = evidence.cells[:, 0], evidence.observed, evidence.log_h
        for part, piece in _pieces(columns, evidence, K):
            z, some = table[:, piece][columns[part]], slice(part.start, part.stop)
            values = scratch("log values", (len(z), K, z.shape[-1]), z).zero_()
            for at in range(s):
                away = (z[:, at, None] - mean[some, :, at, None]) * factor[some, :, at, None]
                each = peak[some, :, at, None] - away * away
                if observed is not None:
                    each = each * observed[:, piece][columns[part, at], None]
                values += each
            if log_h is not None:
                values += log_h[:, piece][columns[part]].sum(1, keepdim=True)
            yield part, piece, values

    def add_centred(
        self,
        flow: Float[Tensor, "leaf_nodes K batch"],
        leaves: NodeRows,
        columns: Int[Tensor, "n s"],
        evidence: Evidence,
        total: Float[Tensor, "K pairs"],
        sums: Float[Tensor, "K pairs 2"],
        origin: Float[Tensor, "K pairs"],
        mild: bool,
    ) -> None:
        """Like ``add_statistics``, with Σ p_L (z − o) and Σ p_L (z − o)² for an origin o of each.

        Args:
            flow, leaves, columns, evidence, total: As there.
            sums: What to add to.
            origin: o.
            mild: Whether sums counted from 0 have the digits that the variances need.
        """
        if mild:
            count, raw = torch.zeros_like(total), torch.zeros_like(sums)
            self.add_statistics(flow, leaves, columns, evidence, count, raw)
            total += count
            sums += counted_from(count, raw, origin)
            return
        K, (n, s) = len(origin), columns.shape
        starts = origin.view(K, n, s).transpose(0, 1)
        table, observed = evidence.cells[:, 0], evidence.observed
        to_total, to_sums = total.view(K, n, s), sums.view(K, n, s, 2)
        for part, piece in _pieces(columns, evidence, K):
            z, some = table[:, piece][columns[part]], slice(part.start, part.stop)
            p = leaves.take(flow, part, "flow")[:, :, piece].double()
            for at in range(s):
                share = p
                if observed is not None:
                    share = p * observed[:, piece][columns[part, at], None]
                away = z[:, at, None] - starts[some, :, at, None]
                moved = share * away
                to_total[:, some, at] += share.sum(-1).T
                to_sums[:, some, at, 0] += moved.sum(-1).T
                to_sums[:, some, at, 1] += (moved * away).sum(-1).T


def _pieces(columns: Tensor, evidence: Evidence, K: int) -> list[tuple[slice, slice]]:
    """Pieces of (leaves, samples)."""
    numbers = columns.shape[1] + 4 * K
    parts, pieces = blocks(len(columns), evidence.batch, 8 * numbers, block_bytes(columns.device))
    return [(part, piece) for piece in pieces for part in parts]
