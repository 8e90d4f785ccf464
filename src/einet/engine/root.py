"""Arithmetic over class roots: joint log densities log p(c, x), some of which may be −∞."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["class_posterior", "log_sum_classes", "mask_classes"]


def mask_classes(
    joint: Float[Tensor, "classes batch"], labels: Int[Tensor, " batch"]
) -> Float[Tensor, "classes batch"]:
    """−∞ for every class but the label, where there is one."""
    classes = torch.arange(joint.shape[0], device=joint.device).unsqueeze(-1)
    return torch.where((labels < 0) | (classes == labels), joint, -torch.inf)


def log_sum_classes(joint: Float[Tensor, "classes batch"]) -> Float[Tensor, " batch"]:
    """log Σ_c exp, with a gradient of 0 and not NaN where all are −∞."""
    possible = joint.amax(0) > -torch.inf
    total = torch.logsumexp(torch.where(possible, joint, 0.0), 0)
    return torch.where(possible, total, -torch.inf)


def class_posterior(
    joint: Float[Tensor, "classes batch"], log_prior: Float[Tensor, " classes"] | None
) -> Float[Tensor, "classes batch"]:
    """softmax over classes; where all are −∞ the prior, or 0 if none is given."""
    possible = joint.amax(0) > -torch.inf
    instead = torch.zeros_like(joint) if log_prior is None else log_prior.exp().unsqueeze(-1)
    return torch.where(possible, torch.softmax(torch.where(possible, joint, 0.0), 0), instead)
