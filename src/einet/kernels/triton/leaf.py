"""What the leaves do with fused kernels: evidence, values, statistics, a step of EM.

Nothing here waits for the device, so that all of it can be captured in a CUDA graph.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.leaf_kernel import Added, FusedEvidence, FusedLeafKernel, Out, Pairs
from einet.kernels.triton.leaf_common import as_step, scale

__all__ = ["add_statistics", "evidence", "scale_values", "step", "values"]


def evidence(
    kernel: FusedLeafKernel,
    family: ExponentialFamily,
    hyper: dict[str, Tensor],
    variables: Tensor,
    x: Tensor,
    observed: Tensor | None,
) -> FusedEvidence:
    """The columns ``variables`` of ``x`` as leaves of one family need them."""
    if x.shape[0] == 0:
        return FusedEvidence(kernel, 0, x.new_empty(len(variables), 0, dtype=torch.float32))
    with _on(variables):
        return kernel.evidence(family, hyper, variables, x, observed)


def values(
    pairs: Pairs, evidence: FusedEvidence, natural: tuple[Tensor, Tensor] | None, out: Out
) -> None:
    """Log densities of a block into ``out``; by θ and A in place of its own where given."""
    if evidence.batch:
        with _on(pairs.stored):
            evidence.kernel.values(pairs, evidence, natural, out)


def scale_values(out: Out) -> None:
    """Turn the sums over families in ``out.total`` into scaled values."""
    if out.v.shape[-1]:
        with _on(out.v):
            scale(out)


def add_statistics(
    pairs: Pairs, evidence: FusedEvidence, flow: Tensor, total: Tensor, weighted: Tensor
) -> None:
    """Add Σ p_L and Σ p_L T(x) of a block to float64 sums."""
    if evidence.batch:
        with _on(pairs.stored):
            evidence.kernel.add_statistics(pairs, evidence, flow, total, weighted)


def step(
    pairs: Pairs,
    evidence: FusedEvidence,
    flow: Tensor,
    step_size: float | Tensor,
    pseudo: float | Tensor | None = None,
    centres: Tensor | None = None,
) -> bool:
    """The M-step of a block, if there is a kernel that does all of it; whether there is.

    With a prior, ``pseudo`` is the pseudo-count of each density and ``centres[V, S + 1]`` where it
    lies (see layers.LeafPrior).
    """
    if evidence.batch == 0:
        return True
    if not evidence.kernel.can_step(pairs):
        return False
    with _on(pairs.stored):
        size = as_step(step_size, pairs.stored)
        added = None
        if pseudo is not None and centres is not None:
            added = Added(as_step(pseudo, pairs.stored), centres.contiguous())
        evidence.kernel.step(pairs, evidence, flow, size, added)
    return True


def _on(tensor: Tensor) -> AbstractContextManager:
    """Launch kernels on a tensor's device, whichever is the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
