"""Rows drawn with replacement, for trees that differ."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["bootstrap_weights"]


def bootstrap_weights(rows: int, seed: int) -> Float[Tensor, " rows"]:
    """How often each row is drawn; drawn on the CPU, so that all devices find the same trees."""
    drawn = torch.randint(rows, (rows,), generator=torch.Generator().manual_seed(seed))
    return torch.bincount(drawn, minlength=rows).double()
