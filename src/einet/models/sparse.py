"""Weights of which many are 0, as a file has them: one bit for each, and those that are not 0."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["ENDINGS", "KEPT", "is_sparse", "pack", "unpack"]

#: What the names of the three tensors end with, behind the name of the one that they stand for.
ENDINGS = ".kept", ".values", ".shape"
#: The first of them, which tells that a tensor is written so.
KEPT = ENDINGS[0]
# A file is worth a newer version if so large a share of a tensor is 0: it is then that much smaller
# but for one bit in 32.
_WORTH = 0.25


def is_sparse(weight: Tensor) -> bool:
    """Whether a tensor is written as what is not 0 in it.

    Example:
        >>> is_sparse(torch.tensor([0.0, 0.5, 0.5])), is_sparse(torch.tensor([0.5, 0.5]))
        (True, False)
    """
    zeros = weight.numel() - int(_is_kept(weight).sum())
    return zeros > 0 and zeros >= _WORTH * weight.numel()


def pack(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which numbers are not 0, as bits of bytes, the highest first; these numbers; the shape.

    Args:
        weight: The tensor.

    Example:
        >>> kept, values, shape = pack(torch.tensor([[0.0, 0.5], [0.5, 0.0]]))
        >>> f"{kept.item():08b}", values.tolist(), shape.tolist()
        ('01100000', [0.5, 0.5], [2, 2])
    """
    flat = weight.detach().flatten().cpu()
    kept = _is_kept(flat)
    bits = torch.from_numpy(np.packbits(kept.numpy()))
    return bits, flat[kept], torch.tensor(list(weight.shape))


def unpack(kept: Tensor, values: Tensor, shape: Tensor, wanted: torch.Size) -> Tensor:
    """The tensor again.

    Args:
        kept, values, shape: As :func:`pack` makes them, or anything else that a file has.
        wanted: The shape that it must have.

    Raises:
        ValueError: They do not fit one another, or the shape. Nothing was made of them then.

    Example:
        >>> unpack(*pack(torch.tensor([[0.0, 0.5]])), torch.Size([1, 2]))
        tensor([[0.0000, 0.5000]])
    """
    if shape.dtype != torch.int64 or shape.ndim != 1 or shape.tolist() != list(wanted):
        raise ValueError(f"its shape must be {list(wanted)}, got {shape.flatten()[:8].tolist()}")
    count = wanted.numel()
    length = -(-count // 8)
    if kept.dtype != torch.uint8 or list(kept.shape) != [length]:
        raise ValueError(
            f"the bits of {count} numbers must be {length} bytes, got {kept.dtype} of shape "
            f"{list(kept.shape)}"
        )
    bits = np.unpackbits(kept.numpy()).view(bool)
    there = int(bits.sum())
    if bits[count:].any() or list(values.shape) != [there]:
        raise ValueError(
            f"there must be a number for each of {there} bits, none of them behind the last of "
            f"{count}, got shape {list(values.shape)}"
        )
    result = torch.zeros(count, dtype=values.dtype)
    result[torch.from_numpy(bits[:count])] = values
    return result.view(wanted)


def _is_kept(weight: Tensor) -> Tensor:
    """Whether each is anything else than a plain 0, so that all bits come back."""
    return (weight != 0) | weight.signbit()
