"""Log densities of single leaf entries at the cells of a batch, variable by variable."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.data.batch import Batch
from einet.families import ExponentialFamily
from einet.kernels.memory import block_bytes, blocks
from einet.layers import LeafBlock, LeafLayer

__all__ = ["leaf_log_values", "log_densities"]


def leaf_log_values(leaf: LeafLayer, batch: Batch) -> Float[Tensor, "leaf_nodes K batch"]:
    """The log values of all leaf entries (float64), without a common scale; missing cells add 0."""
    shape = (leaf.num_nodes, leaf.num_entries, len(batch))
    total = torch.zeros(shape, dtype=torch.float64, device=batch.x.device)
    for block in leaf.leaf_blocks:
        for part, piece, logs in log_densities(block, batch):
            block.rows.add_(total[:, :, piece], part, logs.sum(1))
    return total


def log_densities(
    block: LeafBlock, batch: Batch
) -> Iterator[tuple[slice, slice, Float[Tensor, "n s K rows"]]]:
    """log f_L(x_d) of the leaves of a block (float64): some leaves and some rows at a time.

    It is 0 where a cell is missing, and −∞ outside of the support. The pieces are bounded in
    memory, and are the caller's to change.
    """
    (n, s), K = block.columns.shape, block.stored.shape[0]
    kind, known = block.group.family, batch.mask
    variables = block.group.variables[block.columns]
    x = torch.where(known, batch.x.double(), kind.filler)
    bytes_each = 8 * s * (3 + kind.num_statistics * (kind.kernel != "table")) * K
    parts, pieces = blocks(n, len(batch), bytes_each, 8 * block_bytes(x.device))
    for part in parts:
        stored = block.by_leaf.detach()[:, part].flatten(1, 2).double()
        columns, chosen = block.columns[part].reshape(-1), variables[part].reshape(-1)
        for piece in pieces:
            cells = x[piece].index_select(1, chosen).T
            logs = _at(kind, columns, stored, cells)
            missing = ~known[piece].index_select(1, chosen).T
            logs.masked_fill_(missing.unsqueeze(1), 0.0)
            yield part, piece, logs.unflatten(0, (-1, s))


def _at(
    kind: ExponentialFamily,
    columns: Int[Tensor, " pairs"],
    stored: Float[Tensor, "K pairs P"],
    cells: Float[Tensor, "pairs rows"],
) -> Float[Tensor, "pairs K rows"]:
    family = kind.at(columns.unsqueeze(-1))
    if kind.kernel != "table":
        return family.log_prob(cells, stored.unsqueeze(-2)).transpose(0, 1)
    # One-hot statistics of all cells would take as many times the memory as there are states.
    natural = kind.at(columns)
    theta = natural.theta_of(stored)
    logs = (theta - natural.A(theta).unsqueeze(-1)).transpose(0, 1)
    states = cells.clamp(0, theta.shape[-1] - 1).long()
    looked_up = logs.gather(2, states.unsqueeze(1).expand(-1, logs.shape[1], -1))
    return looked_up + family.log_h(cells).unsqueeze(1)
