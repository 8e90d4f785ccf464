"""Batches as one, and one batch cut into others."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from einet.data.batch import Batch

__all__ = ["joined"]


def joined(parts: Sequence[Batch]) -> Batch:
    """Batches as one; a mask, labels or weights that only some of them have are written out.

    Args:
        parts: At least one batch, all of the same variables and on the same device.

    Example:
        >>> known = torch.tensor([[True, False]])
        >>> both = joined([Batch(torch.ones(1, 2)), Batch(torch.zeros(1, 2), known)])
        >>> both.x.tolist(), both.observed.tolist()
        ([[1.0, 1.0], [0.0, 0.0]], [[True, True], [True, False]])
    """
    if len(parts) == 1:
        return parts[0]
    masked = any(part.observed is not None for part in parts)
    labelled = any(part.labels is not None for part in parts)
    weighted = any(part.weights is not None for part in parts)
    unknown = [torch.full((len(part),), -1, device=part.x.device) for part in parts]
    ones = [torch.ones(len(part), dtype=torch.float64, device=part.x.device) for part in parts]
    labels = [u if p.labels is None else p.labels for p, u in zip(parts, unknown, strict=True)]
    weights = [o if p.weights is None else p.weights for p, o in zip(parts, ones, strict=True)]
    return Batch(
        torch.cat([part.x for part in parts]),
        torch.cat([part.mask for part in parts]) if masked else None,
        torch.cat(labels) if labelled else None,
        torch.cat(weights) if weighted else None,
        parts[0].columns,
    )
