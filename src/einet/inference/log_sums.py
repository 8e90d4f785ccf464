"""Sums over leaves of numbers that a float cannot hold, given by their logs."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["LogSums"]


class LogSums:
    """Sums over the leaves of each variable of numbers given by their logs.

    Kept as ``sums·exp(peaks)``, so that neither far too small nor far too large ones are lost.

    Args:
        variables: How many variables there are.
        like: Anything whose last axis are the rows, on the device of the sums.
    """

    def __init__(self, variables: int, like: Float[Tensor, "*some batch"]) -> None:
        shape, kind = (variables, like.shape[-1]), torch.float64
        # Peaks are finite always: the difference of two infinite ones would be NaN.
        self._low = torch.finfo(kind).min
        self._peaks = like.new_full(shape, self._low, dtype=kind)
        self._sums = like.new_zeros(shape, dtype=kind)

    def add_(
        self,
        variables: Int[Tensor, " pairs"],
        piece: slice,
        logs: Float[Tensor, "pairs samples"],
    ) -> None:
        """Add numbers to the sums of their variables, of which some may occur several times."""
        peaks, sums = self._peaks[:, piece], self._sums[:, piece]
        finite = logs.clamp(self._low, -self._low)
        higher = peaks.scatter_reduce(0, variables.unsqueeze(1).expand_as(logs), finite, "amax")
        sums *= (peaks - higher).exp()
        sums.index_add_(0, variables, (logs - higher[variables]).exp())
        peaks.copy_(higher)

    def log(self) -> Float[Tensor, "variables batch"]:
        """The logs of all sums."""
        return self._sums.log() + self._peaks
