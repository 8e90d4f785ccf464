"""k-means on the model's device, in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._checks import as_int, as_seed
from einet._memory import fitting
from einet.data.streams import Rows

__all__ = ["Clusters", "cluster_means", "kmeans", "nearest_centre"]

# Centres are sought among so many rows for each cluster at least.
_LEAST_ROWS_EACH = 20
# Empty clusters look among so many of the farthest rows for each: those may lie close together.
_CANDIDATES_EACH = 32


@dataclass(frozen=True)
class Clusters:
    """Rows and the centres they belong to, by k-means.

    Attributes:
        assignment: The cluster of each row: that of the nearest centre.
        centres: The centre of each cluster, in units of the data.
        inertia: The sum of squared distances between rows and their centres, one number for each
            iteration; it never rises.
    """

    assignment: Int[Tensor, " rows"]
    centres: Float[Tensor, "clusters variables"]
    inertia: list[float]


@torch.no_grad()
def kmeans(
    rows: Rows,
    num_clusters: int,
    *,
    seed: int = 0,
    max_iterations: int = 100,
    tolerance: float = 1e-4,
) -> Clusters:
    """Cluster rows by their Euclidean distance to as many centres.

    Centres are sought by greedy k-means++ on a random subset, then by Lloyd's iterations on all
    rows. A centre that has lost its rows starts again at the row that lies farthest from its own.
    Missing cells count as their column's mean, and rows as often as they weigh. What is random is
    drawn on the CPU.

    Args:
        rows: The rows.
        num_clusters: How many centres.
        seed: Seed of the first centres.
        max_iterations: How often to look through all rows.
        tolerance: Stop once the inertia falls by no more than this share of it.

    Example:
        >>> from einet.data.batch import Batch
        >>> x = torch.tensor([[0.0], [10.0], [0.5], [10.5]])
        >>> clusters = kmeans(Rows(Batch(x), torch.device("cpu")), num_clusters=2)
        >>> clusters.centres.sort(0).values.flatten()
        tensor([ 0.2500, 10.2500], dtype=torch.float64)
        >>> clusters.inertia[-1]
        0.25
    """
    num_clusters = as_int("num_clusters", num_clusters, minimum=1)
    max_iterations = as_int("max_iterations", max_iterations, minimum=1)
    if num_clusters > len(rows):
        raise ValueError(
            f"num_clusters must not exceed the number of rows, {len(rows)}, got {num_clusters}"
        )
    centres = _seeds(rows, num_clusters, torch.Generator().manual_seed(as_seed(seed)))
    best = _nearest(rows, centres)
    inertia = [best.inertia]
    while len(inertia) < max_iterations and best.inertia > 0:
        moved = best.means(rows, centres)
        nearest = _nearest(rows, moved)
        # Close to the end a step can be lost to rounding; it is not taken then.
        if nearest.inertia > best.inertia:
            break
        done = nearest.inertia >= (1 - tolerance) * best.inertia
        done = done or torch.equal(nearest.assignment, best.assignment)
        best, centres = nearest, moved
        inertia.append(best.inertia)
        if done:
            break
    return Clusters(best.assignment, centres.double() + rows.mean, inertia)


@dataclass
class _Nearest:
    """Rows and their nearest centres."""

    assignment: Int[Tensor, " rows"]
    distance: Float[Tensor, " rows"]
    sums: Float[Tensor, "clusters variables"]
    counts: Float[Tensor, " clusters"]
    inertia: float

    def means(
        self, rows: Rows, centres: Float[Tensor, "clusters variables"]
    ) -> Float[Tensor, "clusters variables"]:
        """The mean of every cluster; far rows for those that are empty."""
        least = torch.finfo(self.counts.dtype).tiny
        means = (self.sums / self.counts.clamp(min=least).unsqueeze(-1)).float()
        empty = (self.counts == 0).nonzero().flatten().tolist()
        if not empty:
            return means
        far = self.distance.topk(min(len(rows), _CANDIDATES_EACH * len(empty)))
        farthest, distance = torch.cat(list(rows.centred(far.indices))), far.values
        for cluster in empty:
            best = distance.argmax()
            # Where no row is off its centre, there are fewer different rows than clusters.
            means[cluster] = torch.where(distance[best] > 0, farthest[best], centres[cluster])
            distance = torch.minimum(distance, (farthest - farthest[best]).square().sum(1))
        return means


def _nearest(rows: Rows, centres: Float[Tensor, "clusters variables"]) -> _Nearest:
    half = 0.5 * centres.square().sum(1)
    sums = torch.zeros_like(centres, dtype=torch.float64)
    counts = torch.zeros_like(half, dtype=torch.float64)
    assignments, distances, start = [], [], 0
    weights = _weights(rows)
    for x in rows.centred():
        # ½|x − c|² less ½|x|²; data that are centred lose no digits to it.
        least = torch.addmm(half, x, centres.T, alpha=-1).min(1)
        assignments.append(least.indices)
        distances.append((x.square().sum(1) + 2 * least.values).clamp_(min=0))
        # A product with one-hot rows adds in a fixed order, as index_add_ on a GPU does not.
        share = 1.0 if weights is None else weights[start : start + len(x)].unsqueeze(1)
        member = x.new_zeros(len(x), len(centres)).scatter_(1, least.indices.unsqueeze(1), 1.0)
        member *= share
        sums += member.T @ x
        counts += member.sum(0)
        start += len(x)
    distance = torch.cat(distances)
    weighted = distance.double() if weights is None else distance.double() * weights
    total = float(weighted.sum())
    return _Nearest(torch.cat(assignments), distance, sums, counts, total)


def _weights(rows: Rows) -> Float[Tensor, " rows"] | None:
    """How often each row counts, where rows are asked for."""
    weights = rows.given.weights
    return None if weights is None else weights.to(rows.device, torch.float32)


def cluster_means(
    rows: Rows, assignment: Int[Tensor, " rows"], num_clusters: int
) -> Float[Tensor, "clusters variables"]:
    """The mean of the known cells of each cluster (float64); the column's where it has none."""
    size = (num_clusters, rows.num_variables)
    sums = torch.zeros(size, dtype=torch.float64, device=rows.device)
    counts, start = torch.zeros_like(sums), 0
    for part in rows:
        which = assignment[start : start + len(part)].to(rows.device)
        member = sums.new_zeros(len(part), num_clusters).scatter_(1, which.unsqueeze(1), 1.0)
        known = part.mask.double()
        sums += member.T @ torch.where(part.mask, part.x.double() - rows.mean, 0.0)
        counts += member.T @ known
        start += len(part)
    return sums / counts.clamp(min=1) + rows.mean


def nearest_centre(
    rows: Rows, centres: Float[Tensor, "clusters variables"]
) -> Int[Tensor, " rows"]:
    """The cluster of other rows: that of the nearest centre, in units of the data.

    Missing cells of a row do not count.
    """
    middle = centres.double().mean(0)
    inner = (centres.double() - middle).float().to(rows.device)
    squares, nearest = inner.square(), []
    for part in rows:
        known = part.mask
        x = torch.where(known, (part.x.double() - middle.to(part.x.device)), 0.0).float()
        # Σ over known cells of (x − c)², less what does not depend on c.
        distance = known.float() @ squares.T - 2 * (x @ inner.T)
        nearest.append(distance.argmin(1))
    return torch.cat(nearest)


def _seeds(
    rows: Rows, num_clusters: int, generator: torch.Generator
) -> Float[Tensor, "clusters variables"]:
    """Greedy k-means++: each centre is the best of some rows drawn by their squared distance."""
    least = _LEAST_ROWS_EACH * num_clusters
    most = fitting("seeds", 4 * rows.num_variables, least=least)
    some = torch.randperm(len(rows), generator=generator)[:most].sort().values
    x = torch.cat(list(rows.centred(some)))
    weights = _weights(rows)
    share = x.new_ones(len(x)) if weights is None else weights[some.to(weights.device)]
    squares = x.square().sum(1)
    trials = 2 + int(math.log(num_clusters))
    chosen = torch.randint(len(x), (1,), generator=generator).to(x.device)
    nearest = (squares + squares[chosen] - 2 * (x @ x[chosen].T).squeeze(1)).clamp_(min=0)
    for _ in range(num_clusters - 1):
        # In a race over random distances, each row wins as often as its speed says.
        race = torch.empty(trials, len(x)).exponential_(generator=generator).to(x.device)
        candidates = (nearest * share / race.clamp_(min=1e-30)).argmax(1)
        distance = squares + squares[candidates].unsqueeze(1) - 2 * (x @ x[candidates].T).T
        distance = torch.minimum(distance.clamp_(min=0), nearest)
        best = (distance * share).sum(1).argmin().view(1)
        nearest = distance.index_select(0, best).squeeze(0)
        chosen = torch.cat([chosen, candidates.index_select(0, best)])
    return x[chosen]
