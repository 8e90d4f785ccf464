"""Initial parameters from clusters of rows: state k of every latent variable is cluster k.

EM finds the nearest of many maxima. From random weights it has to agree on the meaning of every
latent variable by itself, which in deep circuits goes badly: neighbours settle on different
meanings. Here all of them start out meaning the same, the cluster that a row belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from einet._memory import chunks
from einet.data.batch import Batch
from einet.data.kmeans import Clusters, kmeans
from einet.data.streams import Rows
from einet.engine.initialize import initialize_leaves
from einet.families import ExponentialFamily

if TYPE_CHECKING:
    from einet.engine.passes import Passes
    from einet.layers import LeafBlock
    from einet.structures import RegionGraph

__all__ = ["initialize_from_clusters"]

# Weights and leaves keep some of what was drawn at random: clusters are not all there is to learn.
_SHARE_OF_WEIGHTS, _SHARE_OF_LEAVES = 0.9, 0.8
# Each cluster counts so many rows of the overall distribution as its own.
_ROWS_FROM_ALL = 5.0
_MOST_ROWS = 20_000
_MOST_ITERATIONS = 20


@torch.no_grad()
def initialize_from_clusters(
    model: Passes,
    data: Batch,
    generator: torch.Generator,
    by: Float[Tensor, "rows features"] | None = None,
    *,
    draw_weights: bool = True,
) -> None:
    """Set leaves and sum weights of a model from k-means clusters of rows, one for each entry.

    Entry k of every leaf moves to the statistics of cluster k, and entry k of every inner sum to
    entry k of its children (modulo their number). Trees that meet at the root only have clusters of
    their own: what one of them misses, another may find. What is random is drawn on the CPU.

    Args:
        model: The model.
        data: The rows.
        generator: What is drawn from.
        by: What the rows are clustered by, where that is not the rows themselves: numbers of
            categories, say, have no distances that mean anything.
        draw_weights: Whether sum weights are drawn anew before they move; else they move from where
            they are.
    """
    if len(data) > _MOST_ROWS:
        some = torch.randperm(len(data), generator=generator)[:_MOST_ROWS].to(data.x.device)
        data, by = data[some], None if by is None else by[some]
    initialize_leaves(model.leaf, data, generator)
    if draw_weights:
        model.circuit.randomize(generator)
    rows = Rows(data.cells if by is None else Batch(by), data.x.device, name="data")
    count = min(model.num_leaves, len(data))
    for tree in _trees(model.graph):
        seed = int(torch.randint(1 << 31, (1,), generator=generator))
        clusters = kmeans(rows, count, seed=seed, max_iterations=_MOST_ITERATIONS)
        for group in model.leaf.family_groups:
            columns = group.variables.to(data.x.device)
            family = group.family.to(columns.device)
            phi = _averages(family, data.x[:, columns], data.mask[:, columns], clusters)
            for block in model.leaf.leaf_blocks:
                if block.group is group:
                    _move(block, phi.to(block.stored.device), tree.to(block.leaves.device))
    for layer in model.circuit.sum_layers:
        if layer.target == "body":
            layer.align(_SHARE_OF_WEIGHTS)


def _trees(graph: RegionGraph) -> list[Bool[Tensor, " leaves"]]:
    """Which leaves belong together: those that are connected by more than the root."""
    above = list(range(len(graph.scopes)))

    def top(region: int) -> int:
        while above[region] != region:
            above[region] = above[above[region]]
            region = above[region]
        return region

    for partition in graph.partitions:
        regions = partition.children
        if partition.region != graph.root:
            regions = (partition.region, *regions)
        for region in regions[1:]:
            above[top(region)] = top(regions[0])
    tops = torch.tensor([top(region) for region in graph.leaves])
    return [tops == number for number in tops.unique()]


def _averages(
    family: ExponentialFamily, x: Tensor, observed: Tensor, clusters: Clusters
) -> Float[Tensor, "clusters V S"]:
    """E[T(x)] of every variable in each cluster; 0 for a variable that was never observed."""
    num, (rows, V), S = len(clusters.centres), x.shape, family.num_statistics
    sums = torch.zeros(num, V * S, dtype=torch.float64, device=x.device)
    counts = torch.zeros(num, V, dtype=torch.float64, device=x.device)
    for part in chunks(rows, "cluster statistics", 8 * V * S):
        is_known, which = observed[part], clusters.assignment[part].to(x.device)
        # A product with one-hot rows adds in a fixed order, as index_add_ on a GPU does not.
        member = torch.zeros(len(which), num, dtype=torch.float64, device=x.device)
        member.scatter_(1, which.unsqueeze(1), 1.0)
        T = family.T(torch.where(is_known, x[part].double(), family.filler)) * is_known.unsqueeze(
            -1
        )
        sums += member.T @ T.flatten(1)
        counts += member.T @ is_known.double()
    sums = sums.view(num, V, S)
    overall = sums.sum(0) / counts.sum(0).clamp(min=1).unsqueeze(-1)
    return (sums + _ROWS_FROM_ALL * overall) / (counts + _ROWS_FROM_ALL).unsqueeze(-1)


def _move(
    block: LeafBlock, phi: Float[Tensor, "clusters V S"], tree: Bool[Tensor, " leaves"]
) -> None:
    """Move the first entries of a block's leaves in a tree towards one cluster each."""
    columns = block.columns.reshape(-1)
    # Where a variable was never observed there is nothing to move to.
    is_known = (phi != 0).any(0).any(-1)[columns]
    moved = tree[block.leaves].repeat_interleave(block.columns.shape[1]) & is_known
    old = block.stored[: len(phi)]
    new = torch.lerp(block.family.phi_of(old.double()), phi[:, columns], _SHARE_OF_LEAVES)
    new = block.from_phi(new)
    block.stored[: len(phi)] = torch.where(moved.unsqueeze(-1), new, old)
