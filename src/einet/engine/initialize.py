"""Initial parameters of the leaves."""

from __future__ import annotations

import torch
from torch import Tensor

from einet._memory import chunks, fitting
from einet.data.batch import Batch
from einet.data.streams import MOST_FIRST_ROWS
from einet.families import ExponentialFamily
from einet.layers import LeafBlock, LeafLayer

__all__ = ["initialize_leaves"]

# How far an entry moves from the column's overall statistics towards those of one row. At 0 all
# entries would be equal and EM could not tell them apart; at 1 they would be single points.
_TOWARDS_A_ROW = 0.5


@torch.no_grad()
def initialize_leaves(leaf: LeafLayer, data: Batch | None, generator: torch.Generator) -> None:
    """Draw the parameters of every leaf, from data where there are any.

    What is random is drawn on the CPU, so that a seed means the same on every device; all else is
    computed where the data are.
    """
    if data is None:
        for block in leaf.leaf_blocks:
            K, pairs, _ = block.stored.shape
            phi = block.family.to("cpu").random_phi((K, pairs), generator)
            block.stored.copy_(block.from_phi(phi))
        return
    if len(data) > MOST_FIRST_ROWS:
        data = data[torch.randperm(len(data), generator=generator)[:MOST_FIRST_ROWS]]
    # One row for each density of each leaf: its variables then start out belonging together.
    anchors = torch.randint(len(data), (leaf.num_nodes, leaf.num_entries), generator=generator)
    device = data.x.device
    for group in leaf.family_groups:
        columns = group.variables.to(device)
        x, observed = data.x[:, columns], data.mask[:, columns]
        # In the type they were given in, which says how close two values can be.
        x = x if x.is_floating_point() else x.double()
        family = group.family.to(device).adapt(x, observed)
        group.adopt(family.to(group.variables.device))
        x = x.double()
        x = torch.where(observed, x, family.filler)
        average = _average(family, x, observed)
        for block in leaf.leaf_blocks:
            if block.group is group:
                _initialize_block(block, family, x, observed, average, anchors.to(device))


def _average(family: ExponentialFamily, x: Tensor, observed: Tensor) -> Tensor:
    """E[T(x)] of every variable over its observed rows, in bounded memory."""
    total: Tensor | None = None
    step = min(4096, fitting("statistics", 8 * x.shape[1] * family.num_statistics))
    for start in range(0, x.shape[0], step):
        rows = slice(start, start + step)
        part = (family.T(x[rows]) * observed[rows].unsqueeze(-1)).sum(0)
        total = part if total is None else total + part
    assert total is not None
    return total / observed.sum(0).clamp(min=1).unsqueeze(-1)


def _initialize_block(
    block: LeafBlock,
    family: ExponentialFamily,
    x: Tensor,
    observed: Tensor,
    average: Tensor,
    anchors: Tensor,
) -> None:
    columns = block.columns.to(x.device)
    anchors = anchors[block.leaves.to(x.device)].T
    known = observed.any(0)[columns].reshape(-1, 1).to(block.stored.device)
    family, phi = family.at(columns), average[columns]
    for entries in chunks(len(block.stored), "statistics", 8 * phi.numel()):
        rows = anchors[entries].unsqueeze(-1).expand(-1, *columns.shape)
        share = _TOWARDS_A_ROW * observed[rows, columns].double().unsqueeze(-1)
        towards = phi + share * (family.T(x[rows, columns]) - phi)
        new = block.from_phi(towards.flatten(1, 2))
        block.stored[entries] = torch.where(known, new, block.stored[entries])
