"""All arithmetic over roots: log p(c, x) of classes, or log w_m p_m(x) of a mixture's components.

Both are a log prior plus log densities, ``[parts, batch]``, of which any may be −∞.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.data.batch import Batch
from einet.kernels.nodes import Nodes

__all__ = ["fused_log_prob", "join", "log_sum", "responsibilities", "share_out"]


def join(
    log_prob: Float[Tensor, "parts batch"],
    log_prior: Float[Tensor, " parts"],
    labels: Int[Tensor, " batch"] | None = None,
) -> Float[Tensor, "parts batch"]:
    """Log densities jointly with the part they belong to (float64).

    Where a label is known, −∞ for every other part.
    """
    joint = log_prob.double() + log_prior.double().unsqueeze(-1)
    if labels is None:
        return joint
    parts = torch.arange(joint.shape[0], device=joint.device).unsqueeze(-1)
    return torch.where((labels < 0) | (parts == labels), joint, -torch.inf)


def log_sum(joint: Float[Tensor, "parts batch"]) -> Float[Tensor, " batch"]:
    """log Σ exp over parts: log p(x), with a gradient of 0 and not NaN where all are −∞."""
    if joint.shape[0] == 1 and not joint.requires_grad:
        # Of most models: on a GPU the rest takes longer to launch than to compute.
        return joint[0]
    possible = joint.amax(0) > -torch.inf
    total = torch.logsumexp(torch.where(possible, joint, 0.0), 0)
    return torch.where(possible, total, -torch.inf)


def responsibilities(
    joint: Float[Tensor, "parts batch"], log_prior: Float[Tensor, " parts"] | None = None
) -> Float[Tensor, "parts batch"]:
    """The probability of each part given x; where all are −∞ the prior, or 0 if none is given."""
    if joint.shape[0] == 1 and log_prior is None:
        return (joint > -torch.inf).to(joint.dtype)
    possible = joint.amax(0) > -torch.inf
    instead = torch.zeros_like(joint) if log_prior is None else log_prior.exp().unsqueeze(-1)
    return torch.where(possible, torch.softmax(torch.where(possible, joint, 0.0), 0), instead)


def share_out(
    joint: Float[Tensor, "parts batch"], weights: Float[Tensor, " batch"] | None = None
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "parts batch"], Float[Tensor, " batch"]]:
    """An E-step: log p(x), how often each part counts each row, and how often a row counts.

    A row counts as often as its weight, once by default; one that is impossible counts for no part.
    """
    log_prob = log_sum(joint)
    weights = torch.ones_like(log_prob) if weights is None else weights
    return log_prob, responsibilities(joint) * weights, weights


def fused_log_prob(
    root: Nodes,
    log_prior: Float[Tensor, " classes"],
    batch: Batch,
    gradient: Float[Tensor, "classes batch"] | None = None,
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " sums"]]:
    """The same of a root's values by one fused kernel: log p(x), and sums over weighted rows.

    See :func:`einet.kernels.triton.root.finish`; ``gradient`` is where that of the values goes.
    """
    from einet.kernels.triton.root import finish

    weights = None if gradient is None else batch.weights
    return finish(root, log_prior, batch.labels, weights, gradient)
