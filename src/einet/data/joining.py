"""Batches as one, and one batch cut into others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from einet.data.batch import Batch

__all__ = ["chosen", "joined"]


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


def chosen(parts: Sequence[Batch], numbers: Int[Tensor, " rows"]) -> Batch:
    """Some rows of batches that are taken for one, without making one of them.

    Args:
        parts: At least one batch, all of the same variables and on the same device.
        numbers: The numbers of rows among all of them, in ascending order.

    Example:
        >>> parts = [Batch(torch.tensor([[1.0], [2.0]])), Batch(torch.tensor([[3.0]]))]
        >>> chosen(parts, torch.tensor([1, 2])).x.tolist()
        [[2.0], [3.0]]
    """
    ends = torch.tensor([len(part) for part in parts]).cumsum(0)
    cuts = [0, *torch.searchsorted(numbers, ends).tolist()]
    starts = [0, *ends.tolist()]
    return joined(
        [part[numbers[cuts[i] : cuts[i + 1]] - starts[i]] for i, part in enumerate(parts)]
    )
