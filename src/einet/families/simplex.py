"""Probabilities that are kept away from zero."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["floored_simplex"]


def floored_simplex(
    totals: Float[Tensor, "*batch n"],
    floor: float | int | Float[Tensor, "..."],
    rounds: int | None = None,
) -> Float[Tensor, "*batch n"]:
    r"""The likeliest probabilities given expected counts, none of them below its floor.

    Maximises :math:`\sum_i n_i \log w_i` over the simplex with :math:`w_i \ge \epsilon_i`. The
    solution is :math:`w_i = \max(\epsilon_i, n_i / \tau)` with τ such that the sum is 1. In
    :math:`u = 1/\tau` that sum is convex, increasing and piecewise linear, so Newton's method from
    :math:`u = 1 / \sum_i n_i` falls monotonically onto the root: every round moves further entries
    to their floors, never one back, and one that moves none has found it. Two or three are typical.

    A row whose totals are all zero says nothing; it is shared out in proportion to its floors.

    Args:
        totals: Non-negative counts; the last axis is the one that sums to 1. They need no scale.
        floor: One floor, or floors that broadcast against ``totals``. An entry with floor 0 and
            total 0 stays 0. The floors of a row may add up to 1 at most. That is checked except
            on a GPU tensor, where reading it would stall the device.
        rounds: How many rounds to do; ``None`` looks after each round whether any is needed still,
            which waits for a GPU. Rows sum to 1 and keep their floors after any number of them.

    Example:
        >>> floored_simplex(torch.tensor([0.0, 1.0, 9.0]), 0.05)
        tensor([0.0500, 0.0950, 0.8550])
        >>> floored_simplex(torch.tensor([0.0, 1.0, 9.0]), 0.2)
        tensor([0.2000, 0.2000, 0.6000])
    """
    size = totals.shape[-1]
    tiny = torch.finfo(totals.dtype).tiny
    largest = totals.amax(-1, keepdim=True)
    shares = totals / largest.clamp(min=tiny)
    empty = largest == 0
    if isinstance(floor, Tensor):
        floor = floor.to(totals)
        reserved = floor.expand(*floor.shape[:-1], size).sum(-1, keepdim=True)
        if floor.device.type == "cpu" and floor.numel():
            _check_room(floor.min().item(), reserved.max().item(), size)
        shares = torch.where(empty, torch.where(reserved > 0, floor, 1.0), shares)
        room = (1 - reserved).clamp(min=0)
    else:
        _check_room(floor, floor * size, size)
        shares += empty
        room = max(1 - floor * size, 0.0)

    u = 1 / shares.sum(-1, keepdim=True)
    free = torch.empty_like(shares)
    before = None
    while rounds is None or rounds > 0:
        excess = (shares * u).sub_(floor).relu_()
        torch.gt(excess, 0, out=free)
        count = free.sum(-1, keepdim=True)
        if rounds is not None:
            rounds -= 1
        elif before is not None and torch.equal(count, before):
            break
        # Newton's step for Σ max(floor, share·u) = 1, where only the free entries have a slope.
        kept = (
            free.mul_(floor).sum(-1, keepdim=True) if isinstance(floor, Tensor) else floor * count
        )
        lower = u * (room + kept) / (excess.sum(-1, keepdim=True) + kept).clamp(min=tiny)
        # Rounding must not lift an entry off its floor again, or the rounds might never end.
        u = torch.minimum(u, lower)
        before = count

    # Rounding, and whatever rounds were saved, is spread over the free entries.
    excess = (shares * u).sub_(floor).relu_()
    return excess.mul_(room / excess.sum(-1, keepdim=True).clamp(min=tiny)).add_(floor)


def _check_room(smallest: float, total: float, size: int) -> None:
    if not smallest >= 0:
        raise ValueError(f"floor must not be negative, got {smallest:g}")
    if not total <= 1 + 1e-5:
        raise ValueError(
            f"floor leaves no room: the floors of {size} probabilities add up to {total:g}, "
            "but may add up to 1 at most"
        )
