"""Sums over leaf densities under their posterior probabilities p_L, variable by variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from einet.data.batch import Batch
from einet.kernels.memory import block_bytes, blocks
from einet.layers.leaf import LeafBlock, LeafLayer

__all__ = ["expectation", "expectations", "input_gradient"]


def expectation(
    leaf: LeafLayer,
    flow: Float[Tensor, "leaf_nodes K batch"],
    of: Mapping[LeafBlock, Float[Tensor, "K pairs"]],
) -> Float[Tensor, "variables batch"]:
    """Σ p_L f over the leaf densities of each variable, for a number f of each density.

    Variables of blocks that are not in ``of`` get 0.
    """
    return expectations(leaf, flow, {block: f.unsqueeze(0) for block, f in of.items()}, 1)[0]


def expectations(
    leaf: LeafLayer,
    flow: Float[Tensor, "leaf_nodes K batch"],
    of: Mapping[LeafBlock, Float[Tensor, "count K pairs"]],
    count: int,
) -> Float[Tensor, "count variables batch"]:
    """The same for several numbers of each density, in one pass over their probabilities."""
    shape = (count, leaf.num_variables, flow.shape[-1])
    total = flow.new_zeros(shape, dtype=torch.float64)
    for block, numbers in of.items():
        n, s = block.columns.shape
        K = numbers.shape[1]
        # One row for each number of each variable of a leaf.
        factors = numbers.view(count, K, n, s).permute(2, 0, 3, 1).reshape(n, count * s, K)
        variables = block.group.variables[block.columns]
        size = (K + count * s) * 8
        parts, pieces = blocks(n, flow.shape[-1], size, 8 * block_bytes(flow.device))
        for piece in pieces:
            for part in parts:
                rows = block.rows.view(flow, part)
                p = (flow[block.leaves[part]] if rows is None else rows)[:, :, piece].double()
                sums = torch.bmm(factors[part], p).unflatten(1, (count, s))
                sums = sums.transpose(0, 1).flatten(1, 2)
                total[:, :, piece].index_add_(1, variables[part].reshape(-1), sums)
    return total


@torch.no_grad()
def input_gradient(
    leaf: LeafLayer,
    flow: Float[Tensor, "leaf_nodes K batch"],
    batch: Batch,
    natural: Sequence[tuple[Tensor, Tensor]],
) -> Float[Tensor, "batch variables"]:
    r"""The gradient of log p in the rows (float64), given p_L of every leaf density.

    It is :math:`\sum_L p_L\, \partial \log f_L(x_d) / \partial x_d`, and since
    :math:`\log f_L = \theta_L^\top T(x) + \log h(x) - A(\theta_L)`, only
    :math:`\sum_L p_L \theta_L` and :math:`\sum_L p_L` of each variable are needed. Missing cells,
    discrete variables and impossible rows get 0.

    Args:
        leaf: The leaves.
        flow: p_L, or any weights on log densities of leaves in place of them.
        batch: The rows.
        natural: θ and A of every block.
    """
    x = batch.x
    by_block = dict(zip(leaf.leaf_blocks, natural, strict=True))
    total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    # Rows for the fused kernels have not been looked through for missing cells.
    known = batch.mask & ~x.isnan()
    for group in leaf.family_groups:
        if not group.family.discrete:
            here = group.variables
            its = {block: pair for block, pair in by_block.items() if block.group is group}
            total[:, here] = _of_group(leaf, its, flow, x[:, here], known[:, here])
    return total


def _of_group(
    leaf: LeafLayer,
    natural: Mapping[LeafBlock, tuple[Tensor, Tensor]],
    flow: Tensor,
    x: Float[Tensor, "batch V"],
    known: Bool[Tensor, "batch V"],
) -> Float[Tensor, "batch V"]:
    group = next(iter(natural)).group
    family, variables = group.family, group.variables
    shares = {block: torch.ones_like(A) for block, (_, A) in natural.items()}
    share = expectation(leaf, flow, shares)[variables].T
    factors = []
    for number in range(family.num_statistics):
        of = {block: theta[..., number] for block, (theta, _) in natural.items()}
        factors.append(expectation(leaf, flow, of)[variables].T)
    factor = torch.stack(factors, -1)
    cells = torch.where(known, x.double(), family.filler)
    # Outside the support p_L is 0, but a derivative may be infinite there.
    inside = known & (family.log_h(cells) > -torch.inf)
    cells = torch.where(inside, cells, family.filler)
    with torch.inference_mode(False), torch.enable_grad():
        cells = cells.clone().requires_grad_()
        value = (family.T(cells) * factor.clone()).sum()
        value = value + (family.log_h(cells) * share.clone()).sum()
        (gradient,) = torch.autograd.grad(value, cells)
    return torch.where(inside, gradient, 0.0)
