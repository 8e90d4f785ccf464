"""Leaves of categorical variables in torch: a look-up of θ at the state of each."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.leaf_kernel import Evidence, LeafKernel, Pieces
from einet.kernels.memory import NodeRows, block_bytes, blocks

__all__ = ["TableKernel"]


class TableKernel(LeafKernel):
    """Cells are states, ``[V, batch]``: for families whose T(x) is the one-hot vector of x."""

    def cells(
        self,
        family: ExponentialFamily,
        x: Float[Tensor, "batch V"],
        observed: Float[Tensor, "V batch"] | None,
    ) -> Tensor:
        return x.T.clamp(0, family.num_statistics - 1).long().contiguous()

    def numbers(self, family: ExponentialFamily) -> int:
        return 1

    def of_states(self, states: Int[Tensor, "V batch"]) -> Evidence:
        """States that are all known and possible."""
        nothing = torch.zeros(len(states), dtype=torch.float64, device=states.device)
        return Evidence(self, states.shape[1], states, None, nothing, None)

    def log_values(
        self,
        theta: Float[Tensor, "K pairs S"],
        offset: Float[Tensor, "K pairs"],
        columns: Int[Tensor, "n s"],
        evidence: Evidence,
    ) -> Pieces:
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

    def add_statistics(
        self,
        flow: Float[Tensor, "leaf_nodes K batch"],
        leaves: NodeRows,
        columns: Int[Tensor, "n s"],
        evidence: Evidence,
        total: Float[Tensor, "K pairs"],
        weighted: Float[Tensor, "K pairs S"],
    ) -> None:
        s = columns.shape[1]
        K, _, S = weighted.shape
        for part, piece, index, weight in _bags(columns, evidence, K, S):
            count = part.stop - part.start
            p = leaves.take(flow, part, "flow")[:, :, piece].double().transpose(1, 2).reshape(-1, K)
            # The gradient of the look-up adds p up by table row; tensors of inference mode have
            # none.
            with torch.inference_mode(False), torch.enable_grad():
                size = (count * s * S, K)
                rows = torch.zeros(size, dtype=p.dtype, device=p.device, requires_grad=True)
                weight = None if weight is None else weight.clone()
                summed = F.embedding_bag(index.clone(), rows, mode="sum", per_sample_weights=weight)
                (counts,) = torch.autograd.grad(summed, rows, p.clone())
            counts = counts.view(count * s, S, K).permute(2, 0, 1)
            pairs = slice(part.start * s, part.stop * s)
            weighted[:, pairs] += counts
            total[:, pairs] += counts.sum(-1)


def _bags(
    columns: Tensor, evidence: Evidence, K: int, S: int
) -> Iterator[tuple[slice, slice, Tensor, Tensor | None]]:
    """Pieces of (leaves, samples) with the rows to sum in a table of the piece's own leaves."""
    n, s = columns.shape
    parts, pieces = blocks(n, evidence.batch, 8 * (s + K), block_bytes(columns.device))
    for part in parts:
        position = torch.arange((part.stop - part.start) * s, device=columns.device) * S
        position = position.view(-1, s, 1)
        for piece in pieces:
            index = evidence.cells[:, piece][columns[part]] + position
            index = index.transpose(1, 2).reshape(-1, s)
            weight = None
            if evidence.observed is not None:
                weight = evidence.observed[:, piece][columns[part]].transpose(1, 2).reshape(-1, s)
            yield part, piece, index, weight
