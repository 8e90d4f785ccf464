"""Initial parameters from clusters of rows: state k of every latent variable is cluster k.

EM finds the nearest of many maxima. From random weights it has to agree on the meaning of every
latent variable by itself, which in deep circuits goes badly: neighbours settle on different
meanings. Here all of them start out meaning the same, the cluster that a row belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.families import ExponentialFamily
from einet.learning.initialize import initialize_leaves
from einet.learning.kmeans import Clusters, kmeans
from einet.learning.source import Source

if TYPE_CHECKING:
    from einet.layers import LeafBlock
    from einet.model import Einet

__all__ = ["initialize_from_clusters"]

# Weights and leaves keep some of what was drawn at random: clusters are not all there is to learn.
_SHARE_OF_WEIGHTS, _SHARE_OF_LEAVES = 0.9, 0.8
# Each cluster counts so many rows of the overall distribution as its own.
_ROWS_FROM_ALL = 5.0
_MOST_ROWS = 100_000
_MOST_ITERATIONS = 20


@torch.no_grad()
def initialize_from_clusters(model: Einet, data: Batch, generator: torch.Generator) -> None:
    """Set leaves and sum weights of a model from k-means clusters of rows, one for each entry.

    Entry k of every leaf moves to the statistics of cluster k, and entry k of every inner sum to
    entry k of its children (modulo their number). What is random is drawn on the CPU.
    """
    if len(data) > _MOST_ROWS:
        data = data[torch.randperm(len(data), generator=generator)[:_MOST_ROWS].to(data.x.device)]
    initialize_leaves(model.leaf, data, generator)
    model.circuit.randomize(generator)
    source = Source(data.x, data.observed, model.num_variables, data.x.device, name="data")
    seed = int(torch.randint(1 << 31, (1,), generator=generator))
    count = min(model.num_leaves, len(data))
    clusters = kmeans(source, count, seed=seed, max_iterations=_MOST_ITERATIONS)
    for group in model.leaf.family_groups:
        columns = group.variables.to(data.x.device)
        here = {name: value.to(columns.device) for name, value in group.family.hyper.items()}
        family = group.family.with_hyperparameters(here)
        phi = _averages(family, data.x[:, columns], data.mask[:, columns], clusters)
        for block in model.leaf.leaf_blocks:
            if block.group is group:
                _move(block, phi.to(block.stored.device))
    for layer in model.circuit.sum_layers:
        if layer.target == "body":
            layer.align(_SHARE_OF_WEIGHTS)


def _averages(
    family: ExponentialFamily, x: Tensor, observed: Tensor, clusters: Clusters
) -> Float[Tensor, "clusters V S"]:
    """E[T(x)] of every variable in each cluster; 0 for a variable that was never observed."""
    num, (rows, V), S = len(clusters.centres), x.shape, family.num_statistics
    sums = torch.zeros(num, V * S, dtype=torch.float64, device=x.device)
    counts = torch.zeros(num, V, dtype=torch.float64, device=x.device)
    step = max(1, (1 << 24) // (V * S))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        seen, which = observed[part], clusters.assignment[part].to(x.device)
        # A product with one-hot rows adds in a fixed order, as index_add_ on a GPU does not.
        member = torch.zeros(len(which), num, dtype=torch.float64, device=x.device)
        member.scatter_(1, which.unsqueeze(1), 1.0)
        T = family.T(torch.where(seen, x[part].double(), family.filler)) * seen.unsqueeze(-1)
        sums += member.T @ T.flatten(1)
        counts += member.T @ seen.double()
    sums = sums.view(num, V, S)
    overall = sums.sum(0) / counts.sum(0).clamp(min=1).unsqueeze(-1)
    return (sums + _ROWS_FROM_ALL * overall) / (counts + _ROWS_FROM_ALL).unsqueeze(-1)


def _move(block: LeafBlock, phi: Float[Tensor, "clusters V S"]) -> None:
    """Move the first entries of a block towards one cluster each."""
    entries = slice(0, len(phi))
    old = block.stored[entries]
    mine = block.family.phi_of(old.double())
    new = torch.lerp(mine, phi[:, block.columns.reshape(-1)], _SHARE_OF_LEAVES)
    # Where a variable was never observed there is nothing to move to.
    seen = (phi != 0).any(0).any(-1)[block.columns.reshape(-1)].unsqueeze(-1)
    block.stored[entries] = torch.where(seen, block.from_phi(new).to(old.dtype), old)
