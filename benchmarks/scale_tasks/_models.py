"""The models that processes are measured with."""

from __future__ import annotations

import torch

import einet

__all__ = ["MODELS", "made"]

#: Name, K and rows of a mini-batch of each process.
MODELS = {
    "random trees, K 10": (10, 500),
    "random trees, K 32": (32, 500),
    "hidden tree, K 64": (64, 500),
}


def made(name: str, rows: int) -> tuple[einet.Einet, torch.Tensor]:
    """A model by its name, and rows for it."""
    K, _ = MODELS[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 64, generator=generator).cumsum(1) / 8
    if name.startswith("random"):
        graph = einet.random_trees(64, depth=4, replicas=10, seed=0)
        return einet.Einet(graph, einet.Gaussian(), K).initialize(x), x
    states = x.clamp(-2, 1.9).add(2).mul(4).floor()
    model = einet.Einet(einet.chow_liu(states), einet.Categorical(16), K, sums="linear")
    return model.initialize(states), states
