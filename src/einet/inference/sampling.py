"""Choices of a top-down pass: drawn at random, or the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._checks import as_seed

__all__ = ["Leaves", "as_generator", "best", "draw"]

#: What is read off a leaf that was chosen: a draw from its density, or its mean.
Leaves = Literal["sample", "mean"]


def as_generator(
    seed: int | torch.Generator | None, device: torch.device
) -> torch.Generator | None:
    """A generator on ``device`` from a seed; None leaves the choice to torch's global state."""
    if isinstance(seed, torch.Generator) and seed.device.type != device.type:
        raise ValueError(
            f"seed must be a generator on the model's device, {device}, got one on {seed.device}"
        )
    if seed is None or isinstance(seed, torch.Generator):
        return seed
    return torch.Generator(device).manual_seed(as_seed(seed))


def draw(
    generator: torch.Generator | None,
) -> Callable[[Float[Tensor, "visits options"]], Int[Tensor, " visits"]]:
    """A function that draws from each row of unnormalised weights, by inverting its CDF."""

    def pick(weights: Float[Tensor, "visits options"]) -> Int[Tensor, " visits"]:
        cumulative = weights.cumsum(-1, dtype=torch.float64)
        uniform = torch.rand(
            (weights.shape[0], 1), generator=generator, dtype=torch.float64, device=weights.device
        )
        # Counting the cumulative weights at or below the target passes over weights of zero.
        chosen = (cumulative <= uniform * cumulative[:, -1:]).sum(-1)
        return chosen.clamp_(max=weights.shape[1] - 1)

    return pick


def best(weights: Float[Tensor, "visits options"]) -> Int[Tensor, " visits"]:
    """The option of largest weight in each row, the first of equals."""
    return weights.argmax(-1)
