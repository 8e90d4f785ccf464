"""The leaves' kernels of all families behind one face: evidence, values, statistics, a step of EM.

Nothing here waits for the device, so that all of it can be captured in a CUDA graph.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.torch.leaf import FusedEvidence
from einet.kernels.triton import (
    leaf_binary,
    leaf_evidence,
    leaf_gaussian,
    leaf_product,
    leaf_table,
)
from einet.kernels.triton.leaf_common import Added, Out, Pairs, as_step, scale

__all__ = ["Out", "Pairs", "add_statistics", "evidence", "scale_values", "step", "values"]


def evidence(
    family: ExponentialFamily,
    hyper: dict[str, Tensor],
    variables: Tensor,
    x: Tensor,
    observed: Tensor | None,
) -> FusedEvidence:
    """The columns ``variables`` of ``x`` as leaves of one family need them."""
    batch = x.shape[0]
    if batch == 0:
        return FusedEvidence(family.kernel, 0, x.new_empty(len(variables), 0, dtype=torch.float32))
    with _on(variables):
        if family.kernel == "centred":
            location, scale = hyper["location"], hyper["scale"]
            z, holes = leaf_evidence.standardised(x, observed, variables, location, scale)
            return FusedEvidence("centred", batch, z, holes=holes)
        if family.kernel == "table":
            states = leaf_evidence.states(x, observed, variables, hyper["num_categories"])
            return FusedEvidence("table", batch, states)
        if family.kernel == "binary":
            return FusedEvidence("binary", batch, leaf_evidence.bits(x, observed, variables))
        mine = x.index_select(1, variables).double()
        seen = ~mine.isnan()
        if observed is not None:
            seen &= observed.index_select(1, variables)
        mine = torch.where(seen, mine, family.filler)
        table = torch.cat([family.T(mine), torch.ones_like(mine).unsqueeze(-1)], -1)
        table = torch.where(seen.unsqueeze(-1), table, 0.0).permute(1, 2, 0).contiguous()
        log_h = torch.where(seen, family.log_h(mine), 0.0).T.contiguous()
        return FusedEvidence("product", batch, table, log_h)


def values(
    pairs: Pairs, seen: FusedEvidence, natural: tuple[Tensor, Tensor] | None, out: Out
) -> None:
    """Log densities of a block into ``out``; by θ and A, which only the product needs."""
    if seen.batch == 0:
        return
    with _on(pairs.stored):
        if seen.kind == "centred":
            stored = None
            if natural is not None:
                variance = -0.5 / natural[0][..., 1]
                stored = torch.stack([natural[0][..., 0] * variance, variance], -1).float()
            leaf_gaussian.forward(pairs, seen, out, stored)
        elif seen.kind == "table":
            table = None if natural is None else natural[0] - natural[1].unsqueeze(-1)
            leaf_table.forward(pairs, seen.cells, pairs.stored.shape[-1], out, table)
        elif seen.kind == "binary":
            leaf_binary.forward(pairs, seen, out, natural)
        else:
            assert natural is not None
            assert seen.log_h is not None
            theta, A = (tensor.contiguous() for tensor in natural)
            leaf_product.forward(pairs, theta, A, seen.cells, seen.log_h, out)


def scale_values(out: Out) -> None:
    """Turn the sums over families in ``out.total`` into scaled values."""
    if out.v.shape[-1]:
        with _on(out.v):
            scale(out)


def add_statistics(
    pairs: Pairs, seen: FusedEvidence, flow: Tensor, total: Tensor, weighted: Tensor
) -> None:
    """Add Σ p_L and Σ p_L T(x) of a block to float64 sums."""
    if seen.batch == 0:
        return
    with _on(pairs.stored):
        if seen.kind == "centred":
            leaf_gaussian.add_statistics(pairs, seen, flow, total, weighted)
        elif seen.kind == "table":
            leaf_table.add_statistics(pairs, seen.cells, flow, total, weighted)
        elif seen.kind == "binary":
            leaf_binary.add_statistics(pairs, seen, flow, total, weighted)
        else:
            leaf_product.add_statistics(pairs, seen.cells, flow, total, weighted)


def step(
    pairs: Pairs,
    seen: FusedEvidence,
    flow: Tensor,
    step_size: float | Tensor,
    pseudo: float | Tensor | None = None,
    centres: Tensor | None = None,
) -> bool:
    """The M-step of a block, if there is a kernel that does all of it; whether there is.

    With a prior, ``pseudo`` is the pseudo-count of each density and ``centres[V, S + 1]`` where it
    lies (see layers.LeafPrior).
    """
    if seen.batch == 0:
        return True
    if seen.kind == "product":
        return False
    if seen.kind == "table" and pairs.stored.shape[-1] > leaf_table.LARGEST_STEP:
        return False
    with _on(pairs.stored):
        size = as_step(step_size, pairs.stored)
        added = None
        if pseudo is not None and centres is not None:
            added = Added(as_step(pseudo, pairs.stored), centres.contiguous())
        if seen.kind == "centred":
            leaf_gaussian.step(pairs, seen, flow, size, added)
        elif seen.kind == "binary":
            leaf_binary.step(pairs, seen, flow, size, added)
        else:
            leaf_table.step(pairs, seen.cells, flow, size, added)
    return True


def _on(tensor: Tensor) -> AbstractContextManager:
    """Launch kernels on a tensor's device, whichever is the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
